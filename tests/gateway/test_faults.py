"""A full disk and a damaged store under a running gateway: a clean problem, and it goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.gateway.conftest import Place, serving

MEGABYTE = 1 << 20


def is_problem(answer: httpx2.Response, *statuses: int) -> bool:
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    assert "Traceback" not in answer.text
    return bool(document["title"] and document["detail"])


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def write_until_refused(place: Place) -> tuple[int, httpx2.Response]:
    for number in range(1000):
        document = {"key": f"incident.n{number}", "value": "disk " + "x" * 20_000}
        answer = place.post("/api/truth/upsert", document)
        if answer.status_code != 200:
            return number, answer
    raise AssertionError("the disk was never full")


def test_a_full_disk_is_told_by_507_and_there_is_room_again(small_disk: Path) -> None:
    with serving(small_disk / "data") as place:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * 2 * MEGABYTE)
        written, refused = write_until_refused(place)
        assert written > 5
        assert is_problem(refused, 507)
        assert "free some space" in refused.json()["detail"]
        with ballast.open("ab", buffering=0) as file, pytest.raises(OSError, match="space"):
            while True:
                file.write(b"x" * 4096)
        batch = {"truths": [{"key": f"task.big{n}", "value": "x" * 100_000} for n in range(8)]}
        assert is_problem(place.post("/api/truth/upsert", batch), 507)
        assert is_problem(place.post("/api/events", {"text": "x" * 50_000}), 507)
        assert place.inbox() == []
        assert place.get("/api/truths").json()["total"] == written
        assert place.get("/api/truth/incident.n0").status_code == 200
        assert place.get("/healthz").status_code == 200
        ballast.unlink()
        assert place.post("/api/truth/upsert", batch).status_code == 200
        assert place.post("/api/events", {"text": "x" * 50_000}).status_code == 202
        assert place.store.verify().ok


LIMITED = """
import resource, sys
from pathlib import Path
from tests.gateway.conftest import serving
from tests.gateway.test_faults import is_problem, write_until_refused

with serving(Path(sys.argv[1])) as place:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    written, refused = write_until_refused(place)
    assert is_problem(refused, 507)
    assert place.get("/api/truths").json()["total"] == written > 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    place.upsert("incident.after", 1)
    assert place.store.verify().ok
"""


def test_a_file_that_may_not_grow_is_told_by_507_too(tmp_path: Path) -> None:
    home = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "data")], cwd=home, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# A damaged store

_READS = (
    "/api/truths",
    "/api/truth/categories",
    "/api/truth/recent",
    "/api/truth/category/incident",
    "/metrics",
)


def damage(path: Path, *, keep: int) -> None:
    """Overwrite the file and what is not yet merged into it, from `keep` bytes on."""
    for one in (path, path.with_name(f"{path.name}-wal")):
        size = one.stat().st_size
        with one.open("r+b") as file:
            file.seek(keep)
            file.write(os.urandom(max(0, size - keep)))


@pytest.mark.parametrize("keep", [0, 4096])
def test_a_store_that_is_damaged_while_it_is_served_is_told_by_503(tmp_path: Path, keep: int) -> None:
    data = tmp_path / "data"
    with serving(data) as place:
        truths = [
            {"key": f"incident.n{n}", "value": f"disk 磁盘 {n} " + "x" * 2000, "description": f"w{n}"}
            for n in range(400)
        ]
        assert place.post("/api/truth/upsert", {"truths": truths}).status_code == 200
    with serving(data) as place:
        damage(data / "memory.db", keep=keep)
        answers = [place.get(path) for path in _READS]
        answers += [place.get(f"/api/truth/incident.n{n}") for n in range(0, 400, 30)]
        answers += [place.post("/api/truth/search", {"query": f"磁盘 w{n}"}) for n in range(3)]
        answers += [place.post("/api/truth/upsert", {"key": f"incident.n{n}", "value": 1}) for n in range(3)]
        refused = [answer for answer in answers if answer.status_code >= 500]
        assert refused
        assert all(is_problem(answer, 503) for answer in refused)
        assert "memory.db" in refused[0].json()["detail"]
        assert is_problem(place.get("/api/truths/"), 404)  # it still answers
        assert place.get("/openapi.json").status_code == 200
        assert place.post("/api/events", {"text": "the store is damaged"}).status_code == 202
