"""The optional second signal: what means the same in other words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kernel_gamma.truths.candidates import Scope
from kernel_gamma.truths.database import Connection

__all__ = ["Semantic"]


class Semantic(Protocol):
    """Answers with meanings where the words' index answers with words."""

    def near(self, connection: Connection, query: str, scope: Scope) -> Mapping[int, float]:
        """Truth number (the id of its first index row) -> share 0-1, of the nearest few hundred in scope."""
        ...
