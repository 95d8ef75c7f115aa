"""The static truths that are shipped: sound, within budgets, approved, true of this program."""

from __future__ import annotations

import os

import pytest
from tests.truths.static.conftest import PLACES, counting

from kernel_gamma.configuration import Home, defaults_dir
from kernel_gamma.settings import Settings
from kernel_gamma.topology import load_topology
from kernel_gamma.truths.static.approvals import drift_between, files_on_disk, sha256_of
from kernel_gamma.truths.static.lock import Approval, Lock, read_lock, write_lock
from kernel_gamma.truths.static.rendering import build, joined
from kernel_gamma.truths.static.scan import find_secrets
from kernel_gamma.truths.static.skeleton import skeleton_differences

SHIPPED = defaults_dir()
FILES = {file: raw for file, raw in files_on_disk(SHIPPED, PLACES).items() if raw is not None}
APPROVED_AT = "2026-12-01T00:00:00+00:00"


def test_the_lock_approves_what_is_shipped() -> None:
    """After a change of these files: UPDATE_DOCS=1 python3 run.py test tests/truths/static/test_shipped.py"""
    if os.environ.get("UPDATE_DOCS"):
        entries = {f: Approval(sha256_of(raw), "kernel-gamma", APPROVED_AT) for f, raw in FILES.items()}
        write_lock(SHIPPED, Lock(entries))
    lock = read_lock(SHIPPED)
    assert lock is not None
    stale = drift_between(lock, FILES, PLACES)
    assert stale == [], "stale: UPDATE_DOCS=1 python3 run.py test tests/truths/static/test_shipped.py"
    assert {approval.approved_by for approval in lock.files.values()} == {"kernel-gamma"}


def test_they_are_sound_and_leave_room_for_a_person_s_own_words() -> None:
    block = build(FILES, PLACES, counting())
    assert counting()(joined(block.lean)) <= 500
    assert counting()(joined(block.sections("full"))) <= 1200
    assert len(block.truths) >= 2
    assert len(block.operators) >= 3


def test_the_skeleton_tells_of_the_real_port_and_the_real_nodes() -> None:
    settings = Settings()
    block = build(FILES, PLACES, counting())
    nodes = [node.id for node in load_topology(Home(SHIPPED).topology_file(settings), SHIPPED)]
    ports = {"gateway": settings.gateway.port}
    said = skeleton_differences(block.skeleton, ports=ports, nodes=nodes)
    assert said == [], "change config/kernel_skeleton.yaml, then approve it as the test above says"


@pytest.mark.parametrize("file", sorted(FILES))
def test_nothing_shipped_looks_like_a_secret(file: str) -> None:
    assert find_secrets(FILES[file].decode()) == []
