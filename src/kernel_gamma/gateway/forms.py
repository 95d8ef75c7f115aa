"""What requests and answers look like: the models behind the OpenAPI. The seed's fields, to the letter."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from kernel_gamma.contracts.envelope import Json, rfc3339
from kernel_gamma.contracts.truths import Found, TaskType, Truth
from kernel_gamma.gateway.wordings import CATEGORY_PATTERN, KEY_PATTERN
from kernel_gamma.truths.writing import Limits

__all__ = [
    "UPSERT",
    "UPSERT_MODELS",
    "UPSERT_SCHEMA",
    "Category",
    "CategoryCount",
    "CategoryList",
    "Feedback",
    "FeedbackTaken",
    "Key",
    "PageQuery",
    "RecentQuery",
    "SearchAnswer",
    "SearchRequest",
    "TruthForm",
    "TruthList",
    "TruthOut",
    "UpsertMany",
    "UpsertOne",
    "Written",
    "aware",
    "found_form",
    "last_moment",
    "truth_form",
    "truth_list",
    "written",
]

MOST_RESULTS = 1000
MOST_AT_ONCE = 1000
MOST_DESCRIPTION = Limits().description_chars
"""The store would cut a longer one without a word."""
_FARTHEST = 1_000_000_000

Key = Annotated[
    str, Field(pattern=KEY_PATTERN, min_length=1, max_length=200, examples=["incident.disk_full.root_cause"])
]
Category = Annotated[
    str,
    Field(
        pattern=CATEGORY_PATTERN,
        min_length=1,
        max_length=150,
        description="A category, or a longer key prefix; a dot at its end is ignored.",
        examples=["incident"],
    ),
]


# Moments

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d\d:\d\d)?)?")
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_NAIVE = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?)?$"


def _moment(value: object) -> str:
    """The text itself, once it is a moment; its zone is looked at later."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("must be a time like 2026-09-11T23:59:59, with or without an offset")
    _parsed(value)
    return value


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.upper().replace(":60", ":59"))
    except ValueError as error:
        raise ValueError(f"there is no such time: {error}") from None


def aware(text: str, zone: tzinfo) -> datetime:
    """The moment a text means; without an offset in the mind's own zone."""
    found = _parsed(text)
    found = found if found.tzinfo else found.replace(tzinfo=zone)
    try:
        return found.astimezone(UTC).astimezone(zone)
    except OverflowError:  # an offset that leads out of the years 1 to 9999
        return _EARLIEST if found.year == 1 else _LATEST


def last_moment(text: str, zone: tzinfo) -> datetime:
    """The end of what a text names: `2026-09-11` the whole day, `23:59` the whole minute."""
    found = aware(text, zone)
    if "." in text:
        return found
    if len(text) == len("2026-09-11"):
        return found.replace(hour=23, minute=59, second=59, microsecond=999_999)
    if text.count(":") - (1 if re.search(r"[+-]\d\d:\d\d$", text[10:]) else 0) == 1:
        return found.replace(second=59, microsecond=999_999)
    return found.replace(microsecond=999_999)


def written(moment: datetime) -> str:
    """RFC 3339, which has no seconds in an offset: local times before there were time zones have them."""
    offset = moment.utcoffset() or timedelta()
    if offset % timedelta(minutes=1):
        moment = moment.astimezone(timezone(timedelta(minutes=offset // timedelta(minutes=1))))
    return rfc3339(moment)


Moment = Annotated[
    str,
    PlainValidator(_moment),
    WithJsonSchema(
        {
            "type": "string",
            "anyOf": [{"format": "date-time"}, {"pattern": _NAIVE}],
            "description": "A time, without an offset the mind's local time. A date alone is the whole day.",
            "examples": ["2026-09-11T23:59:59"],
        }
    ),
]


def _whole(value: Any) -> Any:
    """10.0 is the integer 10 in JSON Schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


# What is asked


class SearchRequest(_Request):
    """A search. Every field is optional; without a query everything matches, the newest first."""

    query: Annotated[str, Field(max_length=20_000, examples=["死循环 启动失败"])] | None = None
    categories: Annotated[list[Category], Field(max_length=100, examples=[["incident", "error"]])] | None = (
        None
    )
    start_time: Moment | None = None
    end_time: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(_whole)] | None = 10
    min_similarity: Annotated[float, Field(ge=0, le=1)] | None = 0.0
    include_value: bool | None = True
    task_type: TaskType | None = None


class UpsertOne(_Request):
    """A truth to write: a key, or a category from which a key is made."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["key"], "properties": {"key": {"type": "string"}}},
                {"required": ["category"], "properties": {"category": {"type": "string"}}},
            ]
        }
    )

    key: Key | None = None
    category: Annotated[Category, Field(description="With a key it must be the key's own.")] | None = None
    value: Annotated[Json, Field(description="Any JSON.")]
    description: (
        Annotated[str, Field(max_length=MOST_DESCRIPTION, description="Without one the standing one stays.")]
        | None
    ) = None
    timestamp: Moment | None = None
    locked: (
        Annotated[bool, Field(description="true locks it; only the command line takes a lock off.")] | None
    ) = None

    @model_validator(mode="after")
    def _has_a_name(self) -> UpsertOne:
        if self.key is None and self.category is None:
            raise ValueError("a truth needs a key or a category")
        return self


class UpsertMany(_Request):
    """Truths that are written together, all or none."""

    truths: Annotated[list[UpsertOne], Field(min_length=1, max_length=MOST_AT_ONCE)]


def _one_or_many(value: Any) -> str:
    return (
        "many" if isinstance(value, UpsertMany) or (isinstance(value, dict) and "truths" in value) else "one"
    )


Upsert = Annotated[
    Annotated[UpsertOne, Tag("one")] | Annotated[UpsertMany, Tag("many")], Discriminator(_one_or_many)
]


UPSERT: TypeAdapter[UpsertOne | UpsertMany] = TypeAdapter(Upsert)
_UPSERT = UPSERT.json_schema(ref_template="#/components/schemas/{model}")
UPSERT_MODELS: dict[str, Json] = _UPSERT.pop("$defs")
UPSERT_SCHEMA: dict[str, Json] = _UPSERT


class Feedback(_Request):
    """A judgement: did this truth answer that query?"""

    key: Key
    query: Annotated[str, Field(min_length=1, max_length=20_000)]
    relevant: bool
    by: Annotated[str, Field(max_length=200, description="Who says so.")] | None = None


class PageQuery(BaseModel):
    """A slice of a listing."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MOST_RESULTS)] = 20
    offset: Annotated[int, Field(ge=0, le=_FARTHEST)] = 0


class RecentQuery(BaseModel):
    """How many of the newest, and of which category."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MOST_RESULTS)] = 10
    category: Category | None = None


# What is answered


class TruthOut(BaseModel):
    """One truth, its newest version unless another was asked for."""

    key: str
    category: str
    description: str
    timestamp: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    version: int
    locked: bool
    sha256: Annotated[str | None, Field(description="Its link of the hash chain; null outside the chain.")]
    prev_sha256: str | None
    value: Annotated[Json, Field(description="Any JSON.")]


class TruthList(BaseModel):
    """A slice of a listing; `total` counts all there are."""

    total: int
    returned: int
    limit: int
    offset: int
    results: list[TruthOut]


class CategoryCount(BaseModel):
    """A category and how many truths it holds."""

    category: str
    count: int


class CategoryList(BaseModel):
    """Every category, the fullest first."""

    total: int
    categories: list[CategoryCount]


class FoundOut(BaseModel):
    """One result. `count`, `first` and `last` stand only where near-duplicates were folded into it."""

    key: str
    category: str
    description: str
    timestamp: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    similarity: Annotated[float, Field(ge=0, le=1)]
    excerpt: str
    value: Annotated[Json, Field(description="Any JSON; absent when include_value is false.")] = None
    count: Annotated[int, Field(ge=2)] = 2
    first: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""
    last: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""


class SearchAnswer(BaseModel):
    """`total` counts all that match, not only what is returned."""

    total: int
    returned: int
    results: list[FoundOut]


class Written(BaseModel):
    """What several truths came to: their keys, in order."""

    written: int
    keys: list[str]


class FeedbackTaken(BaseModel):
    """It is kept and weighs in later searches."""

    key: str
    relevant: bool


TruthForm = dict[str, Json]


def truth_form(truth: Truth) -> TruthForm:
    """A truth as it is answered."""
    return {
        "key": truth.key,
        "category": truth.category,
        "description": truth.description,
        "timestamp": written(truth.timestamp),
        "version": truth.version,
        "locked": truth.locked,
        "sha256": truth.sha256,
        "prev_sha256": truth.prev_sha256,
        "value": truth.value,
    }


def truth_list(total: int, limit: int, offset: int, truths: list[Truth]) -> dict[str, Json]:
    """A slice of a listing as it is answered."""
    results = [truth_form(truth) for truth in truths]
    return {"total": total, "returned": len(results), "limit": limit, "offset": offset, "results": results}


def found_form(found: Found, *, include_value: bool) -> dict[str, Json]:
    """A result as it is answered."""
    truth = found.truth
    form: dict[str, Json] = {
        "key": truth.key,
        "category": truth.category,
        "description": truth.description,
        "timestamp": written(truth.timestamp),
        "similarity": round(found.similarity, 4),
        "excerpt": found.excerpt,
    }
    if include_value:
        form["value"] = truth.value
    if found.count > 1:
        form["count"] = found.count
        form["first"] = written(found.first or truth.timestamp)
        form["last"] = written(found.last or truth.timestamp)
    return form
