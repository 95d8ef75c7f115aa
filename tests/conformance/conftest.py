from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.subject import FileBus, Subject


@pytest.fixture(params=[FileBus])
async def bus(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    """Every back end in turn; a new one is added here."""
    subject: Subject = request.param(tmp_path / "mind")
    yield subject
    await subject.stop()
