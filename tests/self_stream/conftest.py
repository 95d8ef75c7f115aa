"""Property tests here write files on whatever disk there is: no deadline for one example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("disk", deadline=None)
settings.load_profile("disk")
