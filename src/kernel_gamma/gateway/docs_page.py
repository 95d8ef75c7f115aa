"""/docs: the OpenAPI as one page that loads nothing from anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from kernel_gamma.gateway.problems import MEDIA_TYPE

__all__ = ["docs_page"]

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Kernel-γ memory gateway</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
code,pre{font:14px/1.4 ui-monospace,monospace}code,li,p{overflow-wrap:anywhere}
pre{max-height:30rem;overflow:auto;padding:.7rem;background:#f4f4f4}
h2{border-top:1px solid #ccc;padding-top:1rem}
nav ul{columns:2 20rem;padding-left:1rem}.m{display:inline-block;min-width:3.5rem;font-weight:bold}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#191919}pre{background:#262626}a{color:#8bf}}
</style></head><body>
"""


def docs_page(schema: Mapping[str, Any]) -> str:
    """The whole page."""
    return _HEAD + "\n".join(_lines(schema)) + "</body></html>\n"


def _lines(schema: Mapping[str, Any]) -> Iterator[str]:
    info = schema["info"]
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
    yield '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>'
    yield f"<nav><ul>{''.join(_links(schema))}</ul></nav>"
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            yield from _operation(path, method, operation)
    yield "<h2>Schemas</h2>"
    for name, model in schema["components"]["schemas"].items():
        yield f"<details><summary><code>{escape(name)}</code></summary>{_json(model)}</details>"


def _links(schema: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in schema["paths"].items():
        for method in operations:
            place = escape(quote(_place(method, path)))
            yield f'<li><a href="#{place}"><code>{method.upper()} {escape(path)}</code></a></li>'


def _place(method: str, path: str) -> str:
    return f"{method}{path}".translate({ord("/"): "-", ord("{"): None, ord("}"): None})


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    place = escape(_place(method, path))
    yield f'<h2 id="{place}"><code><span class="m">{method.upper()}</span> {escape(path)}</code></h2>'
    yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"
    rows = [_parameter(one) for one in operation.get("parameters", ())]
    if rows:
        yield f"<ul>{''.join(rows)}</ul>"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<details><summary>Body, <code>{escape(media)}</code></summary>{_json(content)}</details>"
    problems = []
    for status, answer in operation["responses"].items():
        said = f"{status} {escape(answer['description'])}"
        if MEDIA_TYPE in answer.get("content", {}):
            problems.append(f"<li>{said}</li>")
        else:
            yield f"<details><summary>{said}</summary>{_json(answer.get('content', {}))}</details>"
    if problems:
        yield "<details><summary>Problems, with the fields of <code>Problem</code></summary>"
        yield f"<ul>{''.join(problems)}</ul></details>"


def _parameter(found: Mapping[str, Any]) -> str:
    said = found.get("description") or found["schema"].get("description", "")
    return f"<li><code>{escape(found['name'])}</code> ({escape(found['in'])}) {escape(said)}</li>"


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
