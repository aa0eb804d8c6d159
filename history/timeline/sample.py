"""Applications for a comparison with another system: some at random, each with all its versions."""

from __future__ import annotations

import random
from collections import defaultdict

from psycopg.types.numeric import Float8, Int4

from history.entities import PARTS, Entity, root
from history.timeline import members, rows, statements
from history.timeline.statements import Key, VersionRow

# SYSTEM reads whole blocks, so that a sample costs little; REPEATABLE gives the same rows again.
_SAMPLE = """
    SELECT DISTINCT id FROM {table} TABLESAMPLE SYSTEM (%s) REPEATABLE (%s) ORDER BY id
"""
_FIRST_PERCENT = 0.05


def applications(number: int, seed: int) -> list[str]:
    """The ids of up to this many applications, the same ones again for one seed as long as the
    store is the same. Fewer where the store has fewer."""
    percent = _FIRST_PERCENT
    while True:
        found = statements.fetch(statements.sql(_SAMPLE, root()), [Float8(percent), Int4(seed)])
        if len(found) >= number or percent >= 100:
            ids = [id for (id,) in found]
            return random.Random(seed).sample(ids, min(number, len(ids)))  # noqa: S311 - no secret
        percent = min(100.0, percent * 8)


def versions(application: str) -> dict[tuple[Entity, str, int], list[VersionRow]]:
    """All stored versions of an application and its children, by kind, id and number; more than one
    where a producer gave the number twice. As the present reader may see them."""
    found: dict[tuple[Entity, str, int], list[VersionRow]] = defaultdict(list)
    for entity in PARTS:
        ids = [application] if entity.root else members.children(entity, application)
        if not ids:
            continue
        keys = rows.keys(entity, ids)
        wanted: list[tuple[str, Key]] = [(id, key) for id in keys for key in keys[id]]
        for (id, key), row in sorted(rows.bodies(entity, wanted).items()):
            if row.product_instance_id in (None, application):
                found[entity, id, key.version].append(row)
    return found
