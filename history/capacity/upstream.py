"""What a filter or a label upstream would save. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from history.capacity.estimate import Brought
from history.capacity.services import Stored


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes on disk with all days of retention; error: 95%."""

    name: str
    bytes: float
    error: float


def saved(found: Stored, retention_days: int) -> dict[str, Saved]:
    """By what the service would do. The recorded days stand for all days of retention and today."""
    scale = (retention_days + 1) / found.days
    total = found.total
    return {
        text: Saved(name, amount * scale, error * scale)
        for text, name, amount, error in (
            (
                "A filter upstream of versions that change nothing",
                "nothing",
                total.nothing.bytes,
                total.nothing.bytes_error,
            ),
            (
                "A label upstream of technical versions, which are then left out too",
                "nothingAndTechnical",
                total.nothing.bytes + total.technical.bytes,
                _both(total),
            ),
        )
    }


def _both(total: Brought) -> float:
    """The errors of two parts of one sample, added up: at most this."""
    return total.nothing.bytes_error + total.technical.bytes_error
