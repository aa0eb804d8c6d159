"""Taking over archived rows that the database did not note: an operator says that they are ours."""

from __future__ import annotations

from datetime import date, datetime

import msgspec

from history.archive import checked, manifest, origin, record, sound
from history.archive.store import ArchiveError, Store, folder
from history.base import clock
from history.base.table import counted


class Adopted(msgspec.Struct, frozen=True, rename="camel"):
    """What was taken over. before: the digest that the database had noted, None if it had none."""

    rows: int
    digest: str
    before: str | None
    why: str
    adopted_at: datetime


def adopt(store: Store, table: str, day: date, why: str) -> int:
    """Note the archived rows of a day in the database; returns how many. From now on they count.

    All files are read, and what the manifest says of the ids in them is corrected. The reason stays
    in `adopted.json` of the day's folder. Only with the lock of maintain's runs. Raises
    ArchiveError if the day is not in the archive, is damaged, is noted like that already, or has
    fewer rows than noted: those only `forget` gives up.
    """
    found, known = manifest.load(store, table, day), origin.noted(table, day)
    if found is None:
        raise ArchiveError(f"{table} {day} is not in the archive")
    true = sound.corrected(store, found)
    if known and (known.digest, known.files) == (true.digest, true.files):
        raise ArchiveError(f"the database knows these rows of {table} {day} already")
    if known and found.rows < known.rows:
        raise ArchiveError(
            f"the archive has {counted(found.rows, 'row')} of {table} {day}, the database "
            f"noted {known.rows}. Only `partitions forget` gives archived rows up"
        )
    for _ in checked.rows(store, true):
        pass
    before = known.digest if known else None
    entry = Adopted(found.rows, found.digest, before, why, clock.now())
    record.add(store, f"{folder(table, day)}/adopted.json", Adopted, entry)
    if true != found:
        manifest.save(store, true)
    origin.note(true)
    return true.rows
