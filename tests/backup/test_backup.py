"""A backup under load holds the mind of one moment; a bad file changes nothing."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
import threading
import time
from pathlib import Path

import pytest
from tests.cli.conftest import make_shell
from tests.crash.accounting import Account, where_files_are
from tests.crash.dropping import Dropper
from tests.crash.processes import Nursery, make_home
from tests.crash.workload import furnish, narrate, translate
from tests.fakes import START
from tests.scripted_server import Answer, ParsedRequest, ScriptedServer

from kernel_gamma.backup.archive import BadBackup, read
from kernel_gamma.backup.restoring import restore
from kernel_gamma.backup.taking import take_backup
from kernel_gamma.bus.lock import Held, hold, let_go
from kernel_gamma.configuration import load_settings

EVENTS = 200


def _mind(request: ParsedRequest) -> Answer:
    time.sleep(0.01)
    return Answer(translate(request) if request.agent == "externalizer" else narrate(request))


@pytest.mark.parametrize(("after", "durability"), [(20, "process"), (90, "process"), (50, "full")])
def test_a_backup_under_load_loses_nothing_and_doubles_nothing(
    tmp_path: Path, after: int, durability: str
) -> None:
    home = make_home(tmp_path / "old 旧")
    furnish(home)
    dropper = Dropper(home)
    with ScriptedServer(_mind) as server, Nursery() as nursery:
        environ = {"OPENAI_BASE_URL": server.base_url, "CRASH_TOOL_FILE": str(home / "presses.txt")}
        environ["KGAMMA_BUS__DURABILITY"] = durability

        def flow() -> None:
            for number in range(EVENTS):
                dropper.drop(f"e{number}.json", {"text": f"第 {number} hello", "from": f"p{number % 9}"})
                time.sleep(0.01)

        flowing = threading.Thread(target=flow)
        flowing.start()
        with nursery.start(home, environ, once=False) as daemon:
            done = dropper.data / "inbox/pending/done"
            while len(list(done.glob("*/*.json"))) < after:
                assert not daemon.ended()
                time.sleep(0.01)
            take_backup(home, load_settings(home, {}), tmp_path / "mind.tar.gz", START)
            flowing.join()
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0

        new = tmp_path / "new"
        restored = restore(tmp_path / "mind.tar.gz", new, {})
        held = {name for name, raw in dropper.files.items() if any(_at(restored.data, name))}
        assert after <= len(held) <= EVENTS
        environ["CRASH_TOOL_FILE"] = str(new / "presses.txt")
        assert nursery.once(new, environ) == 0, (new / "output.txt").read_text()
    files = {name: raw for name, raw in dropper.files.items() if name in held}
    assert where_files_are(restored.data, files)["done"] == len(held)
    account = Account(restored.data, files)
    account.check()
    ids = {event for name in files for event in account.ids_of(name)}
    assert set(account.replies) == {f"echo {event}" for event in ids}


def _at(data: Path, name: str) -> list[Path]:
    places = (f"inbox/pending/{name}", f"inbox/taken/*_{name}", f"inbox/pending/done/*/{name}")
    found = [path for place in places for path in data.glob(place)]
    assert len(found) <= 1, found
    return found


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    shell = make_shell(tmp_path / "home")
    shell.drop("hello.json", b'{"text": "hello there", "from": "alice"}')
    shell.drop("memory.json", '{"text": "记住：我喜欢绿茶", "from": "小明"}'.encode())
    shell.live()
    (shell.home / ".env").write_text("OPENAI_API_KEY=sk-4711\n")
    (shell.home / "my_node.py").write_text('"""Mine."""\n')
    return shell.home


def _take(home: Path, file: Path) -> Path:
    take_backup(home, load_settings(home, {}), file, START)
    return file


def test_what_is_put_back_is_what_was_there_but_for_keys_and_what_belongs_to_a_process(lived: Path) -> None:
    file = _take(lived, lived.parent / "mind.tar.gz")
    new = lived.parent / "new"
    restore(file, new, {})
    data = Path("data/kernel")
    for path in ("self/stream/now.md", "inbox/pending/done", "outbox"):
        for old in (p for p in [lived / data / path, *(lived / data / path).rglob("*")] if p.is_file()):
            again = new / old.relative_to(lived)
            assert again.read_bytes() == old.read_bytes()
            assert again.stat().st_mtime_ns == old.stat().st_mtime_ns
    assert (new / "config/kernel.yaml").read_bytes() == (lived / "config/kernel.yaml").read_bytes()
    assert (new / "my_node.py").exists()
    assert not (new / ".env").exists()
    assert not (new / data / "logs").exists()
    assert b"sk-4711" not in b"".join(p.read_bytes() for p in new.rglob("*") if p.is_file())


def test_what_stands_is_refused_or_set_aside_whole(lived: Path) -> None:
    file = _take(lived, lived.parent / "mind.tar.gz")
    before = sorted(str(p) for p in lived.rglob("*"))
    with pytest.raises(BadBackup, match="--replace"):
        restore(file, lived, {})
    assert sorted(str(p) for p in lived.rglob("*")) == before
    stream = (lived / "data/kernel/self/stream/now.md").read_bytes()
    done = restore(file, lived, {}, replace=True)
    assert (lived / "data/kernel.replaced-1/self/stream/now.md").read_bytes() == stream
    assert (lived / "data/kernel/self/stream/now.md").read_bytes() == stream
    assert {path.name for path in done.set_aside} >= {"kernel.replaced-1", "config.replaced-1"}
    with pytest.raises(BadBackup, match="is there already"):
        _take(lived, file)
    with pytest.raises(BadBackup, match="elsewhere"):
        _take(lived, lived / "data/kernel/mind.tar.gz")


def test_a_mind_that_lives_is_not_replaced(lived: Path) -> None:
    file = _take(lived, lived.parent / "mind.tar.gz")
    lock = hold(lived / "data/kernel")
    try:
        with pytest.raises(Held):
            restore(file, lived, {}, replace=True)
    finally:
        let_go(lived / "data/kernel", lock)
    assert not list((lived / "data").glob("*.replaced-*"))


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "text", "missing"])
def test_a_damaged_file_is_told_in_a_line_and_changes_nothing(lived: Path, damage: str) -> None:
    file = _take(lived, lived.parent / "mind.tar.gz")
    raw = bytearray(file.read_bytes())
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    elif damage == "flipped":
        raw[len(raw) // 2] ^= 0xFF
    elif damage == "empty":
        raw.clear()
    elif damage == "text":
        raw[:] = "不是备份\n".encode() * 90
    file.write_bytes(raw)
    if damage == "missing":
        file.unlink()
    new = lived.parent / "new"
    with pytest.raises(BadBackup, match=str(file)):
        restore(file, new, {})
    assert list(new.iterdir()) == []


@pytest.mark.parametrize("name", ["../out.json", "data/../../out.json", "/abs.json", "data//x", "etc/x"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_no_path_and_no_link_leads_out(tmp_path: Path, name: str, kind: bytes) -> None:
    file = tmp_path / "evil.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        info = tarfile.TarInfo(name if kind == tarfile.REGTYPE else "data/link")
        info.type, info.linkname, info.size = kind, "/etc/passwd", 0
        tar.addfile(info, io.BytesIO())
        files = {info.name: {"sha256": "", "size": 0, "mtime_ns": 0}}
        head = {"format": 1, "version": "1", "mind": "m", "time": "t", "ledger_schema": 1}
        manifest = json.dumps({**head, "files": files}).encode()
        last = tarfile.TarInfo("manifest.json")
        last.size = len(manifest)
        tar.addfile(last, io.BytesIO(manifest))
    with pytest.raises(BadBackup):
        restore(file, tmp_path / "home", {})
    assert sorted(os.listdir(tmp_path)) == ["evil.tar.gz", "home"]
    assert os.listdir(tmp_path / "home") == []


def test_a_backup_of_a_newer_version_is_refused(lived: Path) -> None:
    file = _take(lived, lived.parent / "mind.tar.gz")
    assert read(file).ledger_schema >= 1
    newer = lived.parent / "newer.tar.gz"
    with tarfile.open(file) as old, tarfile.open(newer, "w:gz") as tar:
        for member in old:
            data = old.extractfile(member).read()  # type: ignore[union-attr]
            if member.name == "manifest.json":
                data = json.dumps({**json.loads(data), "ledger_schema": 99}).encode()
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    with pytest.raises(BadBackup, match="newer"):
        restore(newer, lived.parent / "new", {})
