"""`partitions restore`, `release`, `forget` and `adopt`: one day of one table, and what came of it.

All but `release` leave a row in the access journal before they do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from rich.progress import Progress

from annals.access.journal.words import Action
from annals.access.journal.write import JournalError, record
from history.archive import origin
from history.archive.decisions import adopt, forget
from history.archive.restore import release, restore
from history.archive.store import ArchiveError, Store
from history.base.table import counted
from history.canonical import Connection
from history.entities import Entity


@dataclass(frozen=True)
class Done:
    """What was done to a day of a table. text: the same as a sentence; empty if it failed."""

    table: str
    day: date
    text: str = ""
    rows: int | None = None
    seal: str | None = None
    failed: str | None = None

    def as_object(self) -> dict[str, object]:
        """The same as JSON values."""
        return {
            "table": self.table,
            "day": str(self.day),
            "rows": self.rows,
            "seal": self.seal,
            "failed": self.failed,
        }


# Only with the lock of maintain's runs.
Act = Callable[[Connection, Entity], Done]


def restoring(store: Store, day: date, progress: Progress) -> Act:
    def act(plain: Connection, entity: Entity) -> Done:
        task = progress.add_task(f"restore {entity.table} {day}, rows", total=None)
        _record(f"partitions restore {day}", entity)
        origin.check(plain, store, entity, day)
        done = restore(
            plain, store, entity, day, lambda rows: progress.update(task, completed=rows)
        )
        text = f"Restored {entity.table} {day}: {counted(done.rows, 'row')}."
        return Done(entity.table, day, text, done.rows)

    return act


def releasing(day: date) -> Act:
    def act(plain: Connection, entity: Entity) -> Done:
        release(plain, entity.table, day)
        return Done(entity.table, day, f"Released {entity.table} {day}.")

    return act


def forgetting(store: Store, day: date, why: str) -> Act:
    def act(_: Connection, entity: Entity) -> Done:
        _record(f"partitions forget {day}", entity, why)
        rows = forget(store, entity.table, day, why)
        text = f"Removed {entity.table} {day} from the archive: {counted(rows, 'row')}."
        return Done(entity.table, day, text, rows)

    return act


def adopting(store: Store, day: date, why: str) -> Act:
    def act(_: Connection, entity: Entity) -> Done:
        _record(f"partitions adopt {day}", entity, why)
        rows = adopt(store, entity.table, day, why)
        text = f"The archived rows of {entity.table} {day} count: {counted(rows, 'row')}."
        return Done(entity.table, day, text, rows)

    return act


def _record(command: str, entity: Entity, why: str = "") -> None:
    """Add a row to the access journal. Raises ArchiveError if that is not possible."""
    try:
        record(Action.OTHER, command, why, entity=entity.name)
    except JournalError as error:
        raise ArchiveError(
            f"the access journal cannot be written, so nothing was done: {error}"
        ) from None
