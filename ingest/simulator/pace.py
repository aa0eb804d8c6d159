"""How fast a simulation is, if no option says it. Its own module, so that a help can import it."""

from __future__ import annotations

from typing import Final

LIVE_RPS: Final = 200.0
