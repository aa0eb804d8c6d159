"""The tables that are partitioned by UTC day, and the days that each should have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from psqlextra.models import PostgresPartitionedModel

from history.day_rows import DayRows
from history.entities import ENTITIES
from history.models import VERSION_MODELS
from history.window import Window


@dataclass(frozen=True, slots=True)
class Partitioned:
    """One kind of partitioned table.

    rows: its columns, for seals. retention_days: None for the tables of versions, which follow the
    window of the policy. Another table has its own retention: no row is dated before the day on
    which it was written, so past days are not created; and nothing is archived.
    """

    model: type[PostgresPartitionedModel]
    rows: DayRows
    retention_days: int | None = None

    @property
    def name(self) -> str:
        return self.rows.table

    @property
    def of_versions(self) -> bool:
        return self.retention_days is None

    def window(self, versions: Window, today: date) -> Window:
        """The days that are kept. versions: those of the tables of versions."""
        if self.retention_days is None:
            return versions
        return Window(today - timedelta(days=self.retention_days), versions.newest)


VERSIONS = tuple(Partitioned(VERSION_MODELS[entity.name], entity) for entity in ENTITIES)
