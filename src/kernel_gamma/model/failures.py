"""A call that brought no answer, as the gateway is told of it."""

from __future__ import annotations

from datetime import datetime

from kernel_gamma.model.refusals import Kind

__all__ = ["CallFailed"]


class CallFailed(Exception):
    """`str()` is a sentence without secrets; `text` is the endpoint's own words, for matching only."""

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        status: int | None = None,
        text: str = "",
        retry_at: datetime | None = None,
        repeat: bool = True,
        received: int = 0,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        """HTTP status; None when there was no answer, or no usable one."""
        self.text = text
        self.retry_at = retry_at
        """What the endpoint's Retry-After named."""
        self.repeat = repeat
        """Whether the same request may be sent again at once."""
        self.received = received
        """Bytes of text that an endless answer had brought, and that may be billed."""

    def as_kind(self, kind: Kind) -> CallFailed:
        return CallFailed(kind, str(self), status=self.status, text=self.text, retry_at=self.retry_at)

    def not_repeated(self) -> CallFailed:
        return CallFailed(
            self.kind,
            str(self),
            status=self.status,
            text=self.text,
            retry_at=self.retry_at,
            repeat=False,
            received=self.received,
        )
