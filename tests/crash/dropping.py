"""What is dropped into an inbox, remembered byte for byte so that it can be accounted for."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from kernel_gamma.contracts.envelope import Json

__all__ = ["Dropper"]


class Dropper:
    """Drops files by name, each once, from any thread."""

    def __init__(self, home: Path) -> None:
        self.data = home / "data/kernel"
        self.files: dict[str, bytes] = {}
        """Name → content of everything dropped so far."""
        self._lock = threading.Lock()

    def drop(self, name: str, content: Json | bytes) -> None:
        """Write and rename; a second drop of the same name is ignored."""
        raw = content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
        with self._lock:
            if name in self.files:
                return
            self.files[name] = raw
            folder = self.data / "inbox/pending"
            half = folder / f".{name}.tmp"
            half.write_bytes(raw)
            half.rename(folder / name)
