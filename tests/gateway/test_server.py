"""The server: its port, its end, several on one file."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from tests.gateway.conftest import Place, serving

from kernel_gamma.errors import SettingsError


def test_a_port_of_zero_is_any_free_one(place: Place) -> None:
    assert place.server.port > 0
    assert place.url == f"http://127.0.0.1:{place.server.port}"
    assert place.get("/healthz").json() == {"status": "ok", "version": "9.9.9"}


def test_a_port_in_use_is_named(place: Place, serve: Callable[..., Place]) -> None:
    with pytest.raises(SettingsError, match=f"gateway.port: port {place.server.port} of 127.0.0.1 is in use"):
        serve("other", gateway={"port": place.server.port})
    assert place.get("/healthz").status_code == 200


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_a_host_that_is_not_here_is_named(serve: Callable[..., Place], host: str) -> None:
    with pytest.raises(SettingsError, match=r"gateway\.host"):
        serve(gateway={"host": host}, token="t0ken")


def test_it_listens_at_ipv6_where_there_is_any(serve: Callable[..., Place]) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    place = serve(gateway={"host": "::1"})
    assert place.url.startswith("http://[::1]:")
    assert place.get("/healthz").status_code == 200


def test_it_stops_at_once_and_its_port_is_free_again(tmp_path: Path) -> None:
    before = threading.active_count()
    with serving(tmp_path / "data") as place:
        place.get("/healthz")  # leaves a connection open
        port = place.server.port
        place.server.stop()
        place.server.stop()
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"http://127.0.0.1:{port}/healthz")
    assert threading.active_count() <= before + 1
    with serving(tmp_path / "data", gateway={"port": port}) as again:
        assert again.get("/healthz").status_code == 200


def test_what_is_being_written_when_it_stops_is_answered_or_not_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    acknowledged: list[str] = []
    with serving(data) as place:

        def write(number: int) -> None:
            try:
                answer = httpx2.post(
                    f"{place.url}/api/truth/upsert",
                    json={"key": f"task.n{number}", "value": number},
                    timeout=10,
                )
            except httpx2.HTTPError:
                return
            if answer.status_code == 200:
                acknowledged.append(answer.json()["key"])

        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(write, number) for number in range(60)]
            running[5].result()
            place.server.stop()
    assert acknowledged
    with serving(data) as again:
        assert all(again.get(f"/api/truth/{key}").status_code == 200 for key in acknowledged)


def test_two_gateways_on_one_file_lose_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as one, serving(data) as other:

        def write(place: Place, name: str) -> None:
            with httpx2.Client(base_url=place.url, timeout=60) as http:
                for number in range(40):
                    for key in ("task.common", f"task.{name}.n{number}"):
                        http.post("/api/truth/upsert", json={"key": key, "value": number}).raise_for_status()

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(write, one, "one"), pool.submit(write, other, "other")]:
                done.result()
        for place in (one, other):
            assert place.get("/api/truth/task.common").json()["version"] == 80
            assert place.get("/api/truth/category/task").json()["total"] == 81
        assert one.store.verify().ok
