"""config/retention.yaml of a home, read."""

from __future__ import annotations

from pathlib import Path

from kernel_gamma.configuration import read_yaml
from kernel_gamma.truths.retention import Retention, load_retention

__all__ = ["read_retention"]


def read_retention(config_dir: Path) -> Retention:
    """What retention.yaml says; the shipped classes where there is no such file. Raises SettingsError."""
    path = config_dir / "retention.yaml"
    if not path.exists() and not path.is_symlink():  # a home that was laid out before there was one
        return Retention.default()
    return load_retention(read_yaml(path), str(path))
