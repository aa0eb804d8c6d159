"""Around statements that give versions: how many documents are read, where each came from, and who
made it."""

from __future__ import annotations

from functools import cache

# Around a statement that gives rows of versions in order. PostgreSQL makes the text of a document
# once, only for those rows, and sends no more than the limit. A large text is dropped before the
# sum, which would write it to a file. OFFSET 0 keeps the planner from making texts several times.
# LATERAL with LIMIT: origins and names are found by primary key, and the order of the rows stays.
_BOUNDED = """
    SELECT version, updated_at, type, client_id, author, product,
           CASE WHEN total <= %s OR total = size THEN text END, id, source, recovered_at,
           person.full_name, person.kind, service.full_name, service.kind
    FROM (
        SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT version, updated_at, type, client_id, author, product, id,
                   octet_length(text) AS size,
                   CASE WHEN number = 1 OR octet_length(text) <= %s THEN text END AS text
            FROM (
                SELECT *, data::text AS text
                FROM (SELECT *, row_number() OVER () AS number FROM ({rows}) AS found) AS numbered
                OFFSET 0) AS texts
            OFFSET 0) AS measured
    ) AS summed
    LEFT JOIN LATERAL (
        SELECT source, recovered_at FROM recovered_version
        WHERE "table" = '{table}' AND row_id = summed.id AND version = summed.version
            AND updated_at = summed.updated_at LIMIT 1
    ) AS recovered ON true
    LEFT JOIN LATERAL (
        SELECT full_name, kind FROM history_person WHERE login = summed.author LIMIT 1
    ) AS person ON true
    LEFT JOIN LATERAL (
        SELECT full_name, kind FROM history_person WHERE login = summed.client_id LIMIT 1
    ) AS service ON true
"""


@cache
def around(statement: str, table: str) -> str:
    """The statement with the limits and the origins around it; its first two values are the limit,
    in bytes. It gives the columns of statements.VersionRow without `old`, source and time of a
    version that Annals asked for, and name and kind of its author and service."""
    return _BOUNDED.format(rows=statement, table=table)
