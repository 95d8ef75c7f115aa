"""Which model answers for which role, and where. Pure: the environment is handed in as a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args
from urllib.parse import urlsplit, urlunsplit

from kernel_gamma.contracts.ports import Role
from kernel_gamma.errors import SettingsError
from kernel_gamma.settings import ModelSettings, RoleSettings

__all__ = ["BASE_URL_VARIABLE", "DEFAULT_BASE_URL", "ROLES", "ResolvedRole", "Roles", "shown_url"]

ROLES: tuple[Role, ...] = get_args(Role)
BASE_URL_VARIABLE = "OPENAI_BASE_URL"
DEFAULT_BASE_URL = "https://api.openai.com/v1"
_NO_KEY = "no-key"
"""Sent to endpoints that were given a base URL but no key, as local servers are."""
_FILE = "config/kernel.yaml"


@dataclass(frozen=True, slots=True)
class ResolvedRole:
    """Everything one call needs to know of its role."""

    role: Role
    """The role whose settings these are; `quality` when the asked one is unset."""
    base_url: str
    api_key: str = field(repr=False)
    settings: RoleSettings
    timeout_sec: float

    @property
    def endpoint(self) -> str:
        """Calls of the same endpoint share a client and a breaker. Holds no secret."""
        return f"{shown_url(self.base_url)} {self.settings.api_key_env}"


class Roles:
    """The roles as configured; unset ones fall back to `quality`.

    Raises SettingsError when a configured role can reach no endpoint (never in offline mode).
    """

    def __init__(self, settings: ModelSettings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self.offline = settings.mode == "offline" or (
            settings.mode == "auto" and not self._reachable_anywhere()
        )
        if not self.offline:
            self._check()

    def has(self, role: Role) -> bool:
        """Whether `role` is configured by itself."""
        return role == "quality" or getattr(self._settings, role) is not None

    def settings_of(self, role: Role) -> RoleSettings:
        """The settings of `role`, or of `quality` when it is unset."""
        found: RoleSettings | None = getattr(self._settings, role)
        return found or self._settings.quality

    def resolve(self, role: Role) -> ResolvedRole:
        """Endpoint, key and settings of `role`."""
        settings = self.settings_of(role)
        return ResolvedRole(
            role=role if self.has(role) else "quality",
            base_url=self._base_url(settings) or DEFAULT_BASE_URL,
            api_key=self._variable(settings.api_key_env) or _NO_KEY,
            settings=settings,
            timeout_sec=settings.timeout_sec or self._settings.timeout_sec,
        )

    def _reachable_anywhere(self) -> bool:
        return any(self._base_url(role) or self._variable(role.api_key_env) for _, role in self._configured())

    def _check(self) -> None:
        for name, role in self._configured():
            url, key = self._base_url(role), self._variable(role.api_key_env)
            if not url and not key:
                raise SettingsError(
                    _FILE,
                    f"model.{name}",
                    f"there is neither a key nor a base URL for {role.model}",
                    f"set the environment variable {role.api_key_env}, or {BASE_URL_VARIABLE} for a"
                    " server that needs no key, or model.mode: offline",
                )
            if url and not _is_http(url):
                raise SettingsError(
                    _FILE,
                    f"model.{name}.base_url" if role.base_url else BASE_URL_VARIABLE,
                    f"{shown_url(url)} is no address of a server",
                    "it must look like https://host/v1",
                )
            if key and not (key.isascii() and key.isprintable()):
                raise SettingsError(
                    _FILE,
                    f"model.{name}.api_key_env",
                    f"the environment variable {role.api_key_env} holds no key: it has characters"
                    " that no key has",
                    "copy the key again",
                )

    def _configured(self) -> Iterator[tuple[Role, RoleSettings]]:
        for role in ROLES:
            if self.has(role):
                yield role, self.settings_of(role)

    def _base_url(self, role: RoleSettings) -> str | None:
        return role.base_url or self._variable(BASE_URL_VARIABLE)

    def _variable(self, name: str) -> str | None:
        """An empty variable counts as unset."""
        return self._environ.get(name, "").strip() or None


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def shown_url(url: str) -> str:
    """`url` as it may be printed: without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the address"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
