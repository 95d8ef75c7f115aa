"""Kernel-γ: a mind that lives in a folder."""

__all__ = ["__version__"]

__version__ = "0.1.0"
