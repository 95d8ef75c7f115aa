"""The daemon as a process of its own, for tests that kill it.

By hand:  python tests/crash/runner.py HOME [--once]       settings come from KGAMMA_ variables
As a nursery (no arguments): one JSON object a line on stdin, `{"home", "once", "environ"}`; each becomes
a forked process that has everything imported already. Answers `{"pid"}` when it lives and `{"status"}`
(negative: the signal that ended it) when it is over. Forked while there is one thread only.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernel_gamma.configuration import load_environment, load_settings
from kernel_gamma.daemon import run_daemon
from kernel_gamma.model.gateway import ModelGateway
from kernel_gamma.model.openai_client import OpenAIClient
from kernel_gamma.model.tokens import Tokens
from kernel_gamma.rhythm.clock import clock_for
from kernel_gamma.settings import ClockSettings

__all__ = ["main"]


class _Unmetered:
    """What was spent, as the gateway asks it: these homes have no budget."""

    def spent_on(self, day: str) -> tuple[int, float]:
        return 0, 0.0

    def tokens_of_rule(self, day: str, rule: str) -> int:
        return 0


class _WarmGateway(ModelGateway):
    """The real gateway over a token table that was loaded before the fork: it costs a second."""

    def __init__(self, home: Path, environ: Mapping[str, str], tokens: Tokens) -> None:
        settings = load_settings(home, load_environment(home, environ))
        super().__init__(
            settings,
            clock=clock_for(settings.clock),
            spending=_Unmetered(),
            environ=environ,
            read_attachment=_no_attachment,
        )
        self._tokens = tokens


def _no_attachment(path: str) -> bytes:
    raise OSError(f"{path}: these homes have no attachments")


def main() -> int:
    if len(sys.argv) > 1:
        return asyncio.run(run_daemon(Path(sys.argv[1]), dict(os.environ), once="--once" in sys.argv))
    tokens = Tokens()
    tokens.load()
    # The SDK imports its larger half when its first client is made: here, so that no child must.
    OpenAIClient("http://127.0.0.1:9/v1", "none", now=clock_for(ClockSettings()).now)
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be_daemon(order, tokens)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)
    return 0


def _be_daemon(order: dict[str, object], tokens: Tokens) -> None:
    """Never returns."""
    code = 70
    home, environ = Path(str(order["home"])), order["environ"]
    assert isinstance(environ, dict)
    output = os.open(home / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os.environ.clear()
        os.environ.update(environ)
        sys.path.insert(0, str(home))
        model = _WarmGateway(home, environ, tokens)
        code = asyncio.run(run_daemon(home, environ, once=bool(order["once"]), model=model))
    except BaseException:  # noqa: BLE001 - it ends right below, and its output says why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
