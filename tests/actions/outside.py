"""Tools of a user, as config/tools.yaml would name them."""

from __future__ import annotations

import asyncio
from typing import Any

CALLS: list[tuple[dict[str, Any], str]] = []


async def water(arguments: dict[str, Any], *, idempotency_key: str) -> Any:
    CALLS.append((arguments, idempotency_key))
    return {"litres": 2}


async def breaks(arguments: dict[str, Any], *, idempotency_key: str) -> Any:
    raise OSError("the pump is dry")


async def dawdles(arguments: dict[str, Any], *, idempotency_key: str) -> Any:
    await asyncio.sleep(60)


async def odd(arguments: dict[str, Any], *, idempotency_key: str) -> Any:
    return {1}


def not_async(arguments: dict[str, Any], *, idempotency_key: str) -> Any:
    return None
