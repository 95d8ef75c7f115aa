"""A client of the memory gateway, for programs in Python. Speaks HTTP; knows nothing of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2

from kernel_gamma.contracts.envelope import Json
from kernel_gamma.contracts.truths import TaskType

__all__ = ["Client", "Dropped", "GatewayError", "Hit", "Hits", "Item", "Items"]

T = TypeVar("T")


class GatewayError(Exception):
    """The gateway refused, failed, or was not there (status 0)."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(f"{status} {title}: {detail}" if status else f"{title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Item:
    """One version of one truth."""

    key: str
    category: str
    description: str
    timestamp: datetime
    """Aware."""
    version: int
    locked: bool
    sha256: str | None
    prev_sha256: str | None
    value: Json


@dataclass(frozen=True, slots=True)
class Items:
    """A slice of a listing."""

    total: int
    returned: int
    limit: int
    offset: int
    results: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search."""

    key: str
    category: str
    description: str
    timestamp: datetime
    """Aware."""
    similarity: float
    """0-1."""
    excerpt: str = ""
    value: Json = None
    """None also when it was not asked for."""
    count: int = 1
    """How many records differ from it only in times and numbers, itself included."""
    first: datetime | None = None
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search came to; `total` counts all that match."""

    total: int
    returned: int
    results: Sequence[Hit]


@dataclass(frozen=True, slots=True)
class Dropped:
    """An event on its way to the mind."""

    id: str | None
    trace_id: str | None
    """None: the mind will give it one when it wakes."""
    file: str | None = None
    ids: Sequence[str | None] = field(default=())
    """Of all events, when there were several."""
    trace_ids: Sequence[str | None] = field(default=())


class Client:
    """One gateway; safe to use from several threads. Close it, or use it in a `with` block."""

    def __init__(
        self, base_url: str = "http://127.0.0.1:9120", token: str | None = None, timeout_sec: float = 30
    ) -> None:
        """`token`: the gateway's, when it asks for one."""
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        # Proxies of the environment are for the world outside, not for a neighbour.
        self._http = httpx2.Client(base_url=base_url, headers=headers, timeout=timeout_sec, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    # ---- truths

    def get(self, key: str, version: int | None = None) -> Item | None:
        """The newest version, or the one asked for; None when there is none."""
        asked = "" if version is None else f"?version={version:d}"
        answer = self._ask("GET", f"/api/truth/{_segment(key)}{asked}", absent=True)
        return None if answer is None else _read(Item, answer.json())

    def put(
        self,
        value: Json,
        *,
        key: str | None = None,
        category: str | None = None,
        description: str | None = None,
        timestamp: datetime | str | None = None,
        locked: bool = False,
        expect_version: int | None = None,
    ) -> Item:
        """Write one truth under `key`, or under a key that is made from `category`.

        `description`: at most 2,000 characters; None keeps the one that stands, "" takes it away.
        `expect_version`: the version this write follows, 0 = there must be none yet; else 412.
        """
        headers = {}
        if expect_version is not None:
            headers = {"If-Match": f'"{expect_version}"'} if expect_version else {"If-None-Match": "*"}
        document = {
            "key": key,
            "category": category,
            "value": value,
            "description": description,
            "timestamp": _written(timestamp),
            "locked": locked,
        }
        return _read(Item, self._post("/api/truth/upsert", _said(document, keep="value"), headers))

    def put_many(self, truths: Iterable[Mapping[str, Json] | Item]) -> list[str]:
        """Write several, all or none: any mapping with the fields of `put`, or an Item as it was read.

        Returns their keys, in order. A key that stands twice among them gets two versions, in order.
        """
        documents = [_new(truth) for truth in truths]
        keys: list[str] = self._post("/api/truth/upsert", {"truths": documents})["keys"]
        return keys

    def search(
        self,
        query: str = "",
        *,
        categories: Sequence[str] = (),
        start_time: datetime | str | None = None,
        end_time: datetime | str | None = None,
        limit: int = 10,
        min_similarity: float = 0.0,
        include_value: bool = True,
        task_type: TaskType | None = None,
    ) -> Hits:
        """Search. Naive times are the mind's local time; both ends belong to the range."""
        document = {
            "query": query,
            "categories": [categories] if isinstance(categories, str) else list(categories),
            "start_time": _written(start_time),
            "end_time": _written(end_time),
            "limit": limit,
            "min_similarity": min_similarity,
            "include_value": include_value,
            "task_type": task_type,
        }
        found = self._post("/api/truth/search", _said(document))
        return Hits(found["total"], found["returned"], tuple(_read(Hit, one) for one in found["results"]))

    def recent(self, limit: int = 10, category: str | None = None) -> Items:
        """The newest truths."""
        return self._list("/api/truth/recent", {"limit": limit, "category": category})

    def category(self, category: str, limit: int = 20, offset: int = 0) -> Items:
        """The truths of a category or of a longer key prefix, newest first."""
        return self._list(f"/api/truth/category/{_segment(category)}", {"limit": limit, "offset": offset})

    def categories(self) -> dict[str, int]:
        """Category -> number of truths, most first."""
        found = self._get("/api/truth/categories")
        return {one["category"]: one["count"] for one in found["categories"]}

    def truths(self, limit: int = 20, offset: int = 0) -> Items:
        """All truths, newest first."""
        return self._list("/api/truths", {"limit": limit, "offset": offset})

    def versions(self, key: str, limit: int = 20, offset: int = 0) -> Items:
        """Every kept version of a truth, oldest first."""
        return self._list(f"/api/truth/{_segment(key)}/versions", {"limit": limit, "offset": offset})

    def feedback(self, key: str, query: str, *, relevant: bool, by: str | None = None) -> None:
        """Say whether a truth answered a query."""
        self._post("/api/truth/feedback", _said({"key": key, "query": query, "relevant": relevant, "by": by}))

    # ---- the mind

    def event(self, event: Mapping[str, Json] | Sequence[Mapping[str, Json]]) -> Dropped:
        """Something for the mind to perceive, in any of the four forms; an array holds several."""
        document = dict(event) if isinstance(event, Mapping) else [dict(one) for one in event]
        return _read(Dropped, self._post("/api/events", document))

    def status(self) -> dict[str, Json]:
        """How the mind is."""
        found: dict[str, Json] = self._get("/api/status")
        return found

    def trace(self, id: str) -> dict[str, Json] | None:
        """One event's whole journey; None when nothing is known of it."""
        answer = self._ask("GET", f"/api/trace/{_segment(id)}", absent=True)
        if answer is None:
            return None
        found: dict[str, Json] = answer.json()
        return found

    def now(self) -> str | None:
        """The current stream, as Markdown; None when there is none yet."""
        return self._page("now")

    def state(self) -> str | None:
        """The state page; None when there is none."""
        return self._page("state")

    def diary(self, date: str) -> str | None:
        """The diary page of a day (`YYYY-MM-DD`); None when there is none."""
        return self._page(f"diary/{_segment(date)}")

    def memories(self, name: str) -> str | None:
        """A memory page, by its name or topic; None when there is none."""
        return self._page(f"memories/{_segment(name)}")

    def health(self) -> bool:
        """Whether the gateway lives and its store can be read. Raises nothing."""
        try:
            return bool(self._get("/healthz")["status"] == "ok")
        except GatewayError:
            return False

    # ---- HTTP

    def _page(self, name: str) -> str | None:
        answer = self._ask("GET", f"/api/self/{name}", absent=True)
        return None if answer is None else answer.content.decode()

    def _list(self, path: str, parameters: Mapping[str, Any]) -> Items:
        found = self._get(path, _said(parameters))
        results = tuple(_read(Item, one) for one in found["results"])
        return Items(found["total"], found["returned"], found["limit"], found["offset"], results)

    def _get(self, path: str, parameters: Mapping[str, Any] | None = None) -> Any:
        answer = self._ask("GET", path, params=dict(parameters or {}))
        return None if answer is None else answer.json()

    def _post(self, path: str, document: Json, headers: Mapping[str, str] | None = None) -> Any:
        answer = self._ask("POST", path, json=document, headers=dict(headers or {}))
        return None if answer is None else answer.json()

    def _ask(self, method: str, path: str, *, absent: bool = False, **more: Any) -> httpx2.Response | None:
        """The answer; None for a 404 when `absent`. Raises GatewayError."""
        try:
            answer = self._http.request(method, path, **more)
        except httpx2.HTTPError as error:
            where = f"{self._http.base_url}"
            raise GatewayError(0, "no answer", f"{where}: {error or type(error).__name__}") from error
        if answer.is_success:
            return answer
        if absent and answer.status_code == httpx2.codes.NOT_FOUND:
            return None
        raise _refusal(answer)


def _refusal(answer: httpx2.Response) -> GatewayError:
    try:
        found = answer.json()
        return GatewayError(answer.status_code, str(found["title"]), str(found["detail"]))
    except (ValueError, KeyError, TypeError):  # a proxy in between, or no gateway at all
        return GatewayError(answer.status_code, answer.reason_phrase, answer.text[:300])


def _segment(name: str) -> str:
    """One segment of a path: `.` and `..` too must not lead elsewhere."""
    return quote(name, safe="").replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def _said(document: Mapping[str, Any], keep: str = "") -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None or key == keep}


def _new(truth: Mapping[str, Any] | Item) -> dict[str, Any]:
    """One of several as it is sent: of an Item what a write takes, the rest is the gateway's to say."""
    if isinstance(truth, Item):
        names = ("key", "value", "description", "timestamp", "locked")
        truth = {name: getattr(truth, name) for name in names}
    document = dict(truth)
    if "timestamp" in document:
        document["timestamp"] = _written(document["timestamp"])
    return document


def _written(moment: datetime | str | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


def _read(kind: type[T], found: Mapping[str, Any]) -> T:
    """`found` as a dataclass; what a newer gateway adds is passed over."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    values = {name: value for name, value in found.items() if name in known}
    for name in ("timestamp", "first", "last"):
        if isinstance(values.get(name), str):
            values[name] = datetime.fromisoformat(values[name])
    return kind(**values)
