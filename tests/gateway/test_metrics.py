"""What Prometheus is told."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.conftest import Place


def samples(place: Place) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = place.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
    }


def requests(found: dict[tuple[str, tuple[tuple[str, str], ...]], float], route: str, status: int) -> float:
    return sum(
        value
        for (name, labels), value in found.items()
        if name == "kgamma_http_requests_total"
        and ("route", route) in labels
        and ("status", str(status)) in labels
    )


def test_requests_are_counted_by_route_and_status(place: Place) -> None:
    place.upsert("task.a", 1)
    place.get("/api/truth/task.a")
    place.get("/api/truth/task.b")
    place.get("/api/truth/task.c")
    place.get("/no/such/address")
    place.get("/api/truths", headers={"host": "evil.example"})
    found = samples(place)
    assert requests(found, "/api/truth/{key}", 200) == 1
    assert requests(found, "/api/truth/{key}", 404) == 2
    assert requests(found, "/api/truth/upsert", 200) == 1
    assert requests(found, "other", 404) == 1
    assert requests(found, "other", 421) == 1


def test_no_series_tells_when_a_counter_began(place: Place) -> None:
    place.get("/api/truths")
    text = place.get("/metrics").text
    assert "_created" not in text
    assert "kgamma_http_requests_total{" in text and "kgamma_http_request_seconds_count{" in text


def test_keys_and_addresses_make_no_new_series(place: Place) -> None:
    place.get("/nothing")
    place.http.request("ODD", "/nothing")
    samples(place)
    before = len(samples(place))
    for n in range(20):
        place.get(f"/nothing/{n}")
        place.http.request(f"ODD{n}", "/nothing")
    assert len(samples(place)) - before == 0


def test_the_mind_is_told_as_its_status_has_it(serve: Callable[..., Place]) -> None:
    status = {
        "running": True,
        "queues": {"inbox/pending": 3},
        "tokens_today": 70,
        "budget_left": None,
        "dead_letters": 2,
    }
    place = serve(status=lambda: status)
    place.upsert("task.a", 1)
    found = samples(place)
    assert found["kgamma_truths", ()] == 1
    assert found["kgamma_mind_running", ()] == 1
    assert found["kgamma_tokens_today", ()] == 70
    assert found["kgamma_dead_letters", ()] == 2
    assert found["kgamma_queue_files", (("queue", "inbox/pending"),)] == 3
    assert ("kgamma_budget_left_tokens", ()) not in found


def test_two_gateways_in_one_process_count_apart(serve: Callable[..., Place]) -> None:
    one, other = serve("one"), serve("other")
    one.get("/api/truths")
    assert requests(samples(other), "/api/truths", 200) == 0


def test_prompts_are_told_by_agent_type_and_section_while_a_daemon_runs(
    serve: Callable[..., Place],
) -> None:
    sums = {
        "by_agent": {"internalizer": 1200},
        "by_type": {"ops_debug": 1200},
        "by_section": {"static/meta_axioms": 148, "dynamic/dynamic": 700},
        "saved_share": 0.8,
        "cached_share": None,
        "cost": 0.25,
    }
    found = samples(serve(status=lambda: {"context": sums}))
    assert found["kgamma_prompt_tokens_by_agent", (("agent", "internalizer"),)] == 1200
    assert found["kgamma_prompt_tokens_by_section", (("section", "dynamic/dynamic"),)] == 700
    assert found["kgamma_prompt_saved_share", ()] == 0.8 and found["kgamma_model_cost", ()] == 0.25
    assert ("kgamma_prompt_cached_share", ()) not in found


def test_measures_alerts_and_what_is_stale_are_told(serve: Callable[..., Place]) -> None:
    flow = {"in_hour": 3, "out_hour": 2, "retries_day": 1, "dead_day": 0}
    waited = {"dwell_p50_sec": 0.5, "dwell_p99_sec": None}
    measures = {
        "cpu_sec": 1.5,
        "rss_mb": 100.0,
        "disk_free_mb": 2,
        "queues": {"inbox/pending": flow | waited},
    }
    status = {"measures": measures, "alerts": [{"code": "disk.low"}], "stale": {"outbox": 4}}
    found = samples(serve(status=lambda: status))
    queue = ("queue", "inbox/pending")
    assert found["kgamma_memory_bytes", ()] == 100e6 and found["kgamma_disk_free_bytes", ()] == 2e6
    assert found["kgamma_queue_in_hour", (queue,)] == 3 and found["kgamma_queue_retries_day", (queue,)] == 1
    dwelt = {labels: n for (name, labels), n in found.items() if name == "kgamma_queue_dwell_seconds"}
    assert dwelt == {(("quantile", "0.5"), queue): 0.5}
    assert found["kgamma_alerts_open", ()] == 1 and found["kgamma_stale", (("kind", "outbox"),)] == 4


def test_without_measures_there_are_no_series_of_them(serve: Callable[..., Place]) -> None:
    found = samples(serve(status=lambda: {"measures": None, "alerts": None, "stale": None}))
    assert not [
        name for name, _ in found if name.startswith(("kgamma_queue_in", "kgamma_alerts", "kgamma_stale"))
    ]
