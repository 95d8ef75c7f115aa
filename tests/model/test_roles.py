from __future__ import annotations

import pytest

from kernel_gamma.errors import SettingsError
from kernel_gamma.model.roles import DEFAULT_BASE_URL, Roles, shown_url
from kernel_gamma.settings import ModelSettings, RoleSettings

KEY = {"OPENAI_API_KEY": "sk-secret-123456"}


def test_offline_only_if_neither_a_key_nor_any_base_url_is_set() -> None:
    assert Roles(ModelSettings(), {}).offline
    assert Roles(ModelSettings(), {"OPENAI_API_KEY": "  "}).offline
    assert not Roles(ModelSettings(), KEY).offline
    assert not Roles(ModelSettings(), {"OPENAI_BASE_URL": "http://localhost:1/v1"}).offline
    local = RoleSettings(model="m", base_url="http://localhost:1/v1")
    assert not Roles(ModelSettings(quality=local), {}).offline
    assert Roles(ModelSettings(mode="offline"), KEY).offline


def test_online_without_a_key_says_which_variable_to_set() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY") as caught:
        Roles(ModelSettings(mode="online"), {})
    assert caught.value.key == "model.quality"


def test_every_configured_role_must_reach_an_endpoint() -> None:
    settings = ModelSettings(fast=RoleSettings(model="m", api_key_env="FAST_KEY"))
    with pytest.raises(SettingsError, match="FAST_KEY"):
        Roles(settings, KEY)
    assert Roles(settings, KEY | {"FAST_KEY": "abc"}).resolve("fast").api_key == "abc"


def test_unset_roles_fall_back_to_quality() -> None:
    roles = Roles(ModelSettings(), KEY)
    assert roles.resolve("fast").settings.model == roles.resolve("quality").settings.model
    assert roles.resolve("fast").role == "quality"
    assert roles.has("quality")
    assert not roles.has("fast")


def test_the_roles_own_base_url_comes_before_the_environments() -> None:
    settings = ModelSettings(fast=RoleSettings(model="m", base_url="http://fast:1/v1"))
    roles = Roles(settings, {"OPENAI_BASE_URL": "http://all:1/v1"})
    assert roles.resolve("fast").base_url == "http://fast:1/v1"
    assert roles.resolve("quality").base_url == "http://all:1/v1"
    assert Roles(ModelSettings(), KEY).resolve("quality").base_url == DEFAULT_BASE_URL


def test_a_base_url_without_a_key_gets_a_dummy_key() -> None:
    resolved = Roles(ModelSettings(), {"OPENAI_BASE_URL": "http://localhost:1/v1"}).resolve("fast")
    assert resolved.api_key


def test_keys_and_passwords_are_never_shown() -> None:
    resolved = Roles(ModelSettings(), KEY | {"OPENAI_BASE_URL": "http://me:pass@host:1/v1?k=1"})
    shown = repr(resolved.resolve("quality").endpoint)
    assert "sk-secret" not in repr(resolved.resolve("quality"))
    assert "pass" not in shown
    assert shown_url("http://me:pass@host:1/v1?k=1") == "http://host:1/v1"


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host/v1", "http://", "http://[bad"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="https://host/v1"):
        Roles(ModelSettings(), {"OPENAI_BASE_URL": url})


def test_a_key_that_cannot_be_one_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY") as caught:
        Roles(ModelSettings(), {"OPENAI_API_KEY": "sk-é-secret"})
    assert "secret" not in str(caught.value)


def test_the_roles_timeout_comes_before_the_general_one() -> None:
    settings = ModelSettings(timeout_sec=60, fast=RoleSettings(model="m", timeout_sec=5))
    roles = Roles(settings, KEY)
    assert roles.resolve("fast").timeout_sec == 5
    assert roles.resolve("quality").timeout_sec == 60
