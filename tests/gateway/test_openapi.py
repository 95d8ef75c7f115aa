"""The OpenAPI is exact: schemathesis sends what it allows and what it forbids, with every check it has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.gateway.conftest import NOW_PAGE, Place

TOKEN = "s3cret-of-the-test"
# A precondition that fails (412) is an answer to a valid request and to an invalid one.
SETTINGS = f"""
hooks = "{Path(__file__).with_name("schema_hooks.py")}"
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "412"]
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "409", "412", "415", "422"]
"""


def test_the_openapi_is_what_the_gateway_does(serve: Callable[..., Place], tmp_path: Path) -> None:
    place = serve(token=TOKEN)
    place.write_page("stream/now.md", NOW_PAGE)
    place.write_page("state.md", "fine\n")
    for n in range(3):
        place.upsert(f"incident.n{n}", {"n": n}, description="启动失败")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    command = [
        str(Path(sys.executable).with_name("st")),
        "--config-file",
        str(tmp_path / "settings.toml"),
        "run",
        f"{place.url}/openapi.json",
        "--header",
        f"Authorization: Bearer {TOKEN}",
        "--exclude-path",
        "/api/stream",  # never ends
        "--checks",
        "all",
        "--max-examples",
        "10",
        "--seed",
        "20261130",
        "--generation-database",
        "none",
        "--no-color",
    ]
    environ = {**os.environ, "NO_PROXY": "*"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Tested: 19" in done.stdout
