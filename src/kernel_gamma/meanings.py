"""The second signal of searches, by meaning: chosen by `gateway.encoder`, filled while a store is served."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from kernel_gamma.contracts.ports import Clock
from kernel_gamma.errors import TruthError
from kernel_gamma.model.embedding import RoleEncoder
from kernel_gamma.model.roles import ResolvedRole, Roles
from kernel_gamma.settings import ModelSettings, Settings
from kernel_gamma.truths.encoders import choose_encoder
from kernel_gamma.truths.retention import Retention
from kernel_gamma.truths.store import SqliteTruths
from kernel_gamma.truths.vectors import Vectors, VectorsFiller, forget_vectors

__all__ = ["Meanings"]

log = structlog.get_logger(__name__)


class Meanings:
    """Vectors beside the words of one memory.db, from `start` to `stop`; words alone without an encoder."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], clock: Clock, retention: Retention
    ) -> None:
        """Raises SettingsError when the encoder that is asked for by name cannot be had."""
        self.tokens_sent = 0
        """To the role `embedding`, as far as its endpoint tells, since this was made."""
        self._role: RoleEncoder | None = None
        self._filler: VectorsFiller | None = None
        role = _reachable_role(settings.model, environ)

        def encoder_of_role() -> RoleEncoder:
            assert role is not None
            self._role = RoleEncoder(role, clock, count_tokens=self._count)
            return self._role

        encoder = choose_encoder(settings.gateway.encoder, None if role is None else encoder_of_role)
        self.vectors = None if encoder is None else Vectors(encoder, skipped=retention.asked_only())
        """What `open_truths` takes as its semantic signal."""

    def start(self, store: SqliteTruths) -> None:
        """Give the store's rows their vectors in the background, or drop those of a former encoder."""
        if self.vectors is not None:
            self._filler = VectorsFiller(self.vectors, store.database)
            self._filler.start()
            return
        try:
            if forget_vectors(store.database):
                log.info("no encoder any more: searches go by words alone")
        except TruthError as error:
            log.warning("vectors of a former encoder could not be dropped", error=str(error))

    def stop(self) -> None:
        """End the filling. Call it before the store is closed."""
        if self._filler is not None:
            self._filler.stop()
            self._filler = None
        if self._role is not None:
            self._role.close()

    def _count(self, tokens: int) -> None:
        self.tokens_sent += tokens


def _reachable_role(settings: ModelSettings, environ: Mapping[str, str]) -> ResolvedRole | None:
    """The role `embedding`, by itself: a gateway alone needs no key for the roles that think."""
    if settings.embedding is None:
        return None
    alone = ModelSettings(mode=settings.mode, timeout_sec=settings.timeout_sec, quality=settings.embedding)
    roles = Roles(alone, environ)
    return None if roles.offline else roles.resolve("embedding")
