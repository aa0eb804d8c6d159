"""Which missing versions a source is asked for: those that it has not answered before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.db import connection

from annals.healing.answer import Answer, Range
from history.entities import BY_NAME, Entity

DOCUMENTS_AT_ONCE = 200

# In the order of the index of open gaps. What is in quarantine came: asking brings the same bytes.
_WANTED = """
SELECT entity, document, array(
    SELECT array[lower(piece), upper(piece) - 1] FROM unnest(missing) AS piece
) FROM (
    SELECT g.entity, g.document, range_agg(int8range(g.first, g.last, '[]'))
        - CASE WHEN %(again)s THEN '{}' ELSE
            coalesce((array_agg(a.gone + a.refused))[1], '{}') END
        - coalesce((
            SELECT range_agg(int8range(q.version, q.version, '[]')) FROM ingest_quarantine q
            WHERE q.entity = g.entity AND q.entity_id = g.document AND q.entity_id <> ''
                AND q.version IS NOT NULL AND q.status <> 'resolved'
                AND NOT (%(again)s AND q.status = 'discarded')
        ), '{}') AS missing
    FROM version_gap g LEFT JOIN gap_answer a
        ON a.entity = g.entity AND a.document = g.document AND a.source = %(source)s
    WHERE g.closed_at IS NULL AND (g.entity, g.document) > (%(kind)s, %(id)s)
        AND g.entity = ANY(%(kinds)s)
        AND (%(clients)s::text[] IS NULL OR g.client_id = ANY(%(clients)s))
        AND (%(again)s OR a.next_attempt_at IS NULL OR a.next_attempt_at <= now())
    GROUP BY g.entity, g.document
) AS open WHERE NOT isempty(missing) ORDER BY entity, document LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Document:
    """A document, and the versions of it to ask for, ascending."""

    entity: Entity
    id: str
    missing: list[Range]


class Asked(Protocol):
    """Whom one can ask. kinds, client_ids: None: any."""

    @property
    def name(self) -> str: ...
    @property
    def kinds(self) -> Sequence[str] | None: ...
    @property
    def client_ids(self) -> Sequence[str] | None: ...

    def answers(self, document: Document) -> Iterator[Answer]: ...


def of(source: Asked, entity: str | None, *, again: bool) -> Iterator[list[Document]]:
    """The documents for which a source is asked, some at a time. entity: only of this kind. again:
    also what it has answered before, or is to be asked for later."""
    kinds = [each for each in source.kinds or BY_NAME if entity in (None, each)]
    kind = id = ""
    while True:
        values: dict[str, Any] = {
            "source": source.name,
            "kinds": kinds,
            "clients": None if source.client_ids is None else list(source.client_ids),
            "again": again,
            "kind": kind,
            "id": id,
            "most": DOCUMENTS_AT_ONCE,
        }
        with connection.cursor() as cursor:
            cursor.execute(_WANTED, values)
            found = [
                Document(BY_NAME[kind], id, [(first, last) for first, last in missing])
                for kind, id, missing in cursor.fetchall()
            ]
        if not found:
            return
        yield found
        kind, id = found[-1].entity.name, found[-1].id
