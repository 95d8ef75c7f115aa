"""/docs and /openapi.json."""

from __future__ import annotations

from html.parser import HTMLParser

from tests.gateway.conftest import Place


class Addresses(HTMLParser):
    """Everything a page loads or leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "action")]


def test_the_page_names_every_endpoint_and_loads_nothing(shared: Place) -> None:
    answer = shared.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    for path in shared.get("/openapi.json").json()["paths"]:
        assert f" {path}</code>" in answer.text
    parser = Addresses()
    parser.feed(answer.text)
    assert parser.found[0] == "/openapi.json"
    places = parser.found[1:]
    assert places and len(set(places)) == len(places)
    for place in places:
        assert place.startswith("#") and f'id="{place[1:]}"' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_problems_are_listed_without_repeating_their_schema(shared: Place) -> None:
    text = shared.get("/docs").text
    assert "<li>409 The truth is locked, or what is asked was decided already.</li>" in text
    assert "application/problem+json" not in text
    assert text.count("#/components/schemas/Problem") == 0


def test_the_endpoints_are_those_of_the_contract(shared: Place) -> None:
    paths = {path: set(found) for path, found in shared.get("/openapi.json").json()["paths"].items()}
    assert paths == {
        "/api/truth/{key}": {"get"},
        "/api/truth/{key}/versions": {"get"},
        "/api/truths": {"get"},
        "/api/truth/search": {"post"},
        "/api/truth/categories": {"get"},
        "/api/truth/recent": {"get"},
        "/api/truth/category/{category}": {"get"},
        "/api/truth/upsert": {"post"},
        "/api/truth/feedback": {"post"},
        "/api/events": {"post"},
        "/api/static/approvals": {"post"},
        "/api/status": {"get"},
        "/api/trace/{id}": {"get"},
        "/api/self/now": {"get"},
        "/api/self/state": {"get"},
        "/api/self/diary/{date}": {"get"},
        "/api/self/memories/{name}": {"get"},
        "/api/stream": {"get"},
        "/healthz": {"get"},
        "/metrics": {"get"},
    }
