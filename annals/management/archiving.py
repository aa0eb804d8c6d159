"""`partitions restore`, `release`, `forget` and `adopt`: one day of one table."""

from collections.abc import Callable
from datetime import date

from annals.access.journal.words import Action
from annals.access.journal.write import JournalError, record
from history.archive import provenance
from history.archive.decisions import adopt, forget
from history.archive.restore import release, restore
from history.archive.store import ArchiveError, Store
from history.base.table import counted
from history.daily.canonical import Connection
from history.entities import Entity

# What it did, as a sentence. Only with the lock of maintain's runs.
Act = Callable[[Connection, Entity], str]


def restoring(store: Store, day: date) -> Act:
    def act(plain: Connection, entity: Entity) -> str:
        note(f"partitions restore {day}", entity.name)
        provenance.check(plain, store, entity, day)
        done = restore(plain, store, entity, day)
        return f"Restored {entity.table} {day}: {counted(done.rows, 'row')}."

    return act


def releasing(day: date) -> Act:
    def act(plain: Connection, entity: Entity) -> str:
        release(plain, entity.table, day)
        return f"Released {entity.table} {day}."

    return act


def forgetting(store: Store, day: date, why: str) -> Act:
    def act(_: Connection, entity: Entity) -> str:
        note(f"partitions forget {day}", entity.name, why)
        rows = forget(store, entity.table, day, why)
        return f"Removed {entity.table} {day} from the archive: {counted(rows, 'row')}."

    return act


def adopting(store: Store, day: date, why: str) -> Act:
    def act(_: Connection, entity: Entity) -> str:
        note(f"partitions adopt {day}", entity.name, why)
        rows = adopt(store, entity.table, day, why)
        return f"The archived rows of {entity.table} {day} count: {counted(rows, 'row')}."

    return act


def note(command: str, entity: str, why: str = "") -> None:
    """Add a row to the access journal. Raises ArchiveError if that is not possible."""
    try:
        record(Action.OTHER, command, why, entity=entity)
    except JournalError as error:
        raise ArchiveError(
            f"the access journal cannot be written, so nothing was done: {error}"
        ) from None
