"""/metrics for Prometheus: requests as they are answered, the mind as its status tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.ports import Clock

__all__ = ["Counting", "Metrics"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_GAUGES: Mapping[str, tuple[str, str]] = {
    "oldest_pending_sec": ("kgamma_oldest_pending_seconds", "Age of the oldest file that waits"),
    "tokens_today": ("kgamma_tokens_today", "Tokens of this local day"),
    "budget_left": ("kgamma_budget_left_tokens", "Tokens that may still be spent today"),
    "dead_letters": ("kgamma_dead_letters", "Files that were set aside"),
    "running": ("kgamma_mind_running", "Whether a daemon holds the mind"),
}
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})


class Metrics:
    """The numbers of one application, in a registry of its own."""

    def __init__(
        self, status: Callable[[], Mapping[str, Json]], truths: Callable[[], Mapping[str, int]]
    ) -> None:
        self.registry = _Registry()
        self.requests = Counter(
            "kgamma_http_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "kgamma_http_request_seconds",
            "Time to the answer",
            ["route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_World(status, truths))

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


class _Registry(CollectorRegistry):
    """Without the series that tell when each counter began: they would double what is sent."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            if metric.samples or metric.type in ("counter", "histogram"):
                yield metric


@dataclass(frozen=True, slots=True)
class _World:
    """Read when Prometheus asks. What cannot be read is left out, so that the rest is still told."""

    status: Callable[[], Mapping[str, Json]]
    truths: Callable[[], Mapping[str, int]]

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("kgamma_truths", "Truths stored", sum(self.truths().values()))
        status = self.status()
        for key, (name, sentence) in _GAUGES.items():
            if isinstance(value := status.get(key), int | float):
                yield GaugeMetricFamily(name, sentence, float(value))
        yield from _prompts(status.get("context") or {})
        yield from _measures(status.get("measures") or {})
        if isinstance(alerts := status.get("alerts"), list):
            yield GaugeMetricFamily(
                "kgamma_alerts_open", "Alerts of the inspector that are open", len(alerts)
            )
        stale = status.get("stale")
        if isinstance(stale, dict) and stale:
            family = GaugeMetricFamily("kgamma_stale", "Files that nobody takes up", labels=["kind"])
            for kind, count in stale.items():
                family.add_metric([kind], count)
            yield family
        queues = GaugeMetricFamily("kgamma_queue_files", "Files that wait", labels=["queue"])
        for queue, count in (status.get("queues") or {}).items():
            queues.add_metric([queue], count)
        yield queues


def _prompts(sums: Mapping[str, Json]) -> Iterator[Metric]:
    """Of the calls since the daemon started; nothing while none runs."""
    for name, sentence, key, label in (
        ("kgamma_prompt_tokens_by_agent", "Tokens of prompts, by agent", "by_agent", "agent"),
        ("kgamma_prompt_tokens_by_type", "Tokens of prompts, by task type", "by_type", "task_type"),
        (
            "kgamma_prompt_tokens_by_section",
            "Tokens of assembled prompts, by section",
            "by_section",
            "section",
        ),
    ):
        counts = sums.get(key)
        if isinstance(counts, dict) and counts:
            family = GaugeMetricFamily(name, sentence, labels=[label])
            for value, count in counts.items():
                family.add_metric([value], count)
            yield family
    for name, sentence, key in (
        ("kgamma_prompt_saved_share", "Share saved against sending everything", "saved_share"),
        ("kgamma_prompt_cached_share", "Share of prompt tokens from endpoints' caches", "cached_share"),
        ("kgamma_model_cost", "Cost of the calls since the daemon started", "cost"),
    ):
        if isinstance(value := sums.get(key), int | float):
            yield GaugeMetricFamily(name, sentence, float(value))


def _measures(measures: Mapping[str, Json]) -> Iterator[Metric]:
    """What metrics_collector had measured; nothing while none runs."""
    for name, sentence, key, factor in (
        ("kgamma_cpu_seconds", "Processor time of the daemon", "cpu_sec", 1.0),
        ("kgamma_memory_bytes", "Memory of the daemon", "rss_mb", 1e6),
        ("kgamma_disk_free_bytes", "Free space on the disk of the mind", "disk_free_mb", 1e6),
    ):
        if isinstance(value := measures.get(key), int | float):
            yield GaugeMetricFamily(name, sentence, float(value) * factor)
    queues = measures.get("queues") or {}
    for name, sentence, key in (
        ("kgamma_queue_in_hour", "Files accepted within the last hour", "in_hour"),
        ("kgamma_queue_out_hour", "Deliveries ended within the last hour", "out_hour"),
        ("kgamma_queue_retries_day", "Repeated attempts within a day", "retries_day"),
        ("kgamma_queue_dead_day", "Deliveries given up within a day", "dead_day"),
    ):
        family = GaugeMetricFamily(name, sentence, labels=["queue"])
        for queue, flow in queues.items():
            family.add_metric([queue], flow[key])
        if queues:
            yield family
    dwell = GaugeMetricFamily(
        "kgamma_queue_dwell_seconds",
        "From acceptance to the end, of a day's deliveries",
        labels=["queue", "quantile"],
    )
    for queue, flow in queues.items():
        for key, quantile in (("dwell_p50_sec", "0.5"), ("dwell_p99_sec", "0.99")):
            if flow[key] is not None:
                dwell.add_metric([queue, quantile], flow[key])
    if queues:
        yield dwell


@dataclass(frozen=True, slots=True)
class Counting:
    """ASGI: counts what is answered, also what the guard refuses."""

    app: ASGIApp
    metrics: Metrics
    clock: Clock
    _unknown: str = field(default="other", init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = self.clock.monotonic(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path_format", self._unknown)
            method = scope["method"] if scope["method"] in _METHODS else self._unknown
            self.metrics.requests.labels(method, route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(self.clock.monotonic() - began)
