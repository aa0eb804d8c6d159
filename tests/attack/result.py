"""What an attack finds: figures, each with its limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an attack; the attack succeeds if it is above the limit."""

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def succeeds(self) -> bool:
        return self.value > self.limit

    def line(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        verdict = "SUCCEEDS" if self.succeeds else "is repelled"
        found = f"{self.value:g}{unit} (limit {self.limit:g}{unit})"
        return f"{self.what}: {found}: the attack {verdict}"
