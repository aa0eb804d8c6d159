"""The chain of an entity's versions: from the newest one, each with the one it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TypeAlias

from history.entities import Entity
from history.timeline import ahead, neighbours, old, paging, union
from history.timeline.neighbours import Keys, Pair
from history.timeline.statements import LAST, Key, VersionRow

# Given all keys and the last one that was read: the key at which to go on; None for the next one.
Skip: TypeAlias = Callable[[Keys, Key], Key | None]


def chain(
    entity: Entity, id: str, start: Key | None = None, skip: Skip | None = None
) -> Iterator[Pair]:
    """The versions from the highest number (or from `start`) down; each is the one that the pair
    before it was compared with. A twin that no version is compared with is not among them.

    `start` itself comes first; if the store no longer has it, the next lower key does. One query
    for all keys and the first BATCH versions, one for every BATCH of the others, or READ_BYTES:
    linear in their number. skip: is asked after each of these, from the first pair on; the pair
    after the versions that it leaves out begins at its key.
    """
    keys = None
    if paging.storable(id):
        old.want(entity, id)
        ahead.entity(entity, id, [start or LAST], paging.BATCH)
        keys = neighbours.all_keys(entity, [id]).get(id)
    if keys is None:
        return
    key = keys.newest if start is None else keys.up_to(start)
    upper: VersionRow | None = None
    most, begun = paging.BATCH, False
    while key is not None:
        batch = [key]
        while len(batch) < most and (lower := keys.previous(batch[-1])) is not None:
            batch.append(lower)
        read, left = union.first_bodies(entity, [(id, each) for each in batch])
        unread = {place for _, place in left}
        most = min(paging.BATCH, max(1, 2 * len(read)))  # where they are large, all are measured
        batch = list(takewhile(lambda each: each not in unread, batch))  # noqa: B023 - used at once
        for each in batch:
            row = read.get((id, each))  # None if retention has just removed it
            if upper is not None:
                yield Pair(entity, upper, row, keys.trusted)
                begun = True
            if row is None:
                return
            upper = row
        key = keys.previous(batch[-1])
        further = skip(keys, batch[-1]) if skip and begun and key is not None else None
        if further is not None:
            key, upper = further, None
    if upper is not None:
        yield Pair(entity, upper, None, keys.trusted)
