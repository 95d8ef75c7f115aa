from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.crash.processes import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """One process to fork daemons from, one after the other."""
    with Nursery() as started:
        yield started
