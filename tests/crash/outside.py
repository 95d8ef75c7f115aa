"""Tools that leave the data directory: each run leaves a line in the file CRASH_TOOL_FILE names."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["press"]


async def press(arguments: dict[str, Any], *, idempotency_key: str) -> Any:
    line = json.dumps({"event": arguments["event"], "key": idempotency_key}) + "\n"
    descriptor = os.open(os.environ["CRASH_TOOL_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
    return "pressed"
