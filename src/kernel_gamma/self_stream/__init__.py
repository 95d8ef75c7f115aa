"""Pool A: the self-stream and its pages. Reading (stream), writing (pages), rules (passages)."""

from __future__ import annotations

from kernel_gamma.self_stream.pages import PageFiles
from kernel_gamma.self_stream.passages import (
    ParsedReply,
    check_passage,
    check_state,
    clean,
    heading,
    parse_reply,
    render,
    slug,
    split,
)
from kernel_gamma.self_stream.stream import SelfStream

__all__ = [
    "PageFiles",
    "ParsedReply",
    "SelfStream",
    "check_passage",
    "check_state",
    "clean",
    "heading",
    "parse_reply",
    "render",
    "slug",
    "split",
]
