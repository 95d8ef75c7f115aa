"""The process: lock, signals, one mind until told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import structlog

from kernel_gamma.bus.lock import hold, let_go
from kernel_gamma.bus.subscription import Observer
from kernel_gamma.configuration import Home, load_environment, load_settings
from kernel_gamma.contracts.ports import Model
from kernel_gamma.errors import SettingsError
from kernel_gamma.mind import Mind
from kernel_gamma.settings import LogSettings, Settings

__all__ = ["EXIT_FAILED", "EXIT_OK", "run_daemon", "set_up_logging"]

EXIT_OK, EXIT_FAILED = 0, 1

log = structlog.get_logger(__name__)


class Served(Protocol):
    """Something that answers over HTTP while the mind lives."""

    @property
    def url(self) -> str: ...

    def stop(self) -> None: ...


def set_up_logging(data: Path, settings: LogSettings) -> None:
    """One JSON object a line into logs/kgamma.log, rotated; warnings of libraries too."""
    folder = data / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(
        folder / "kgamma.log", maxBytes=settings.max_bytes, backupCount=settings.backups, encoding="utf-8"
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(ensure_ascii=False, serializer=_safe_json),
            ],
        )
    )
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, logging.handlers.RotatingFileHandler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    for noisy in ("openai", "httpx2", "httpcore2", "watchdog", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _safe_json(event: Any, **options: Any) -> str:
    """File names that are no UTF-8 must not end a log record."""
    text = json.dumps(event, **{**options, "default": str})
    return text.encode("utf-8", "backslashreplace").decode()


async def run_daemon(
    home: Path,
    environ: Mapping[str, str],
    *,
    once: bool = False,
    observe: Observer | None = None,
    model: Model | None = None,
    on_ready: Any = None,
    serve: Callable[[Mind], Served] | None = None,
) -> int:
    """Run one mind until a signal, or with `once` until it is idle. Returns the exit code.

    `on_ready(mind)` is called when deliveries begin. `serve(mind)` starts what answers over HTTP, in a thread
    of its own; when it cannot, the mind lives on without it. Raises SettingsError and Held before anything
    ran.
    """
    environ = load_environment(home, environ)
    settings = load_settings(home, environ)
    os.umask(0o077)
    data = Home(home).data_dir(settings)
    lock = hold(data)
    try:
        set_up_logging(data, settings.log)
        return await _live(
            home, settings, environ, once=once, observe=observe, model=model, on_ready=on_ready, serve=serve
        )
    finally:
        let_go(data, lock)


async def _live(
    home: Path,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    once: bool,
    observe: Observer | None,
    model: Model | None,
    on_ready: Any,
    serve: Callable[[Mind], Served] | None,
) -> int:
    mind = Mind(home, settings, environ, model=model, observe=observe)
    asked = asyncio.Event()
    _handle_signals(asked)
    await mind.start()
    log.info("started", pid=os.getpid(), mind=settings.mind, data=str(mind.data))
    if on_ready is not None:
        on_ready(mind)
    serving = asyncio.create_task(_serve(mind, serve, observe), name="gateway") if serve else None
    running = asyncio.create_task(mind.run(), name="circuit")
    waits = [running, asyncio.create_task(asked.wait(), name="signals")]
    drained = asyncio.create_task(mind.drained(), name="drained") if once else None
    if drained is not None:
        waits.append(drained)  # type: ignore[arg-type]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    code, reason = EXIT_OK, "asked to stop"
    if running.done() and (error := running.exception()) is not None:
        code, reason = EXIT_FAILED, str(error)
    elif drained is not None and drained.done():
        reason = drained.result()
        code = EXIT_FAILED if reason else EXIT_OK
    for task in waits[1:]:
        task.cancel()
    if serving is not None and (served := await serving) is not None:
        await asyncio.to_thread(served.stop)
    await mind.stop()
    await asyncio.gather(*waits, return_exceptions=True)
    if code != EXIT_OK and observe is not None:
        observe("ended", {"reason": reason})
    log.info("stopped", code=code, reason=reason)
    return code


async def _serve(mind: Mind, serve: Callable[[Mind], Served], observe: Observer | None) -> Served | None:
    try:
        served = await asyncio.to_thread(serve, mind)
    except SettingsError as error:
        log.warning("there is no gateway", problem=str(error))
        if observe is not None:
            observe("gateway", {"problem": str(error)})
        return None
    log.info("serving", url=served.url)
    if observe is not None:
        observe("gateway", {"url": served.url})
    return served


def _handle_signals(asked: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT asks; a second one ends the process at once, and nothing is lost then."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if asked.is_set():
            os._exit(EXIT_FAILED)
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, on_signal)
