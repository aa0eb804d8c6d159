"""What Hypothesis draws: messages, pauses, and faults at points of a command."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.lifecycle.faults import Point
from tests.lifecycle.sent import Draft, Kind, When
from tests.lifecycle.work import Fault

# For each act: words of the statements at which a fault can happen, and about how many statements
# it has.
_POINTS = {
    "write": (["BEGIN", "COPY", "search_key", "ingest_ledger", "END", "ATTACH", "advisory"], 15),
    "maintain": (
        [
            *("ingest_quarantine", "COPY", "part-", "manifest", "archived_day", "count(*)"),
            *("DETACH", "DROP", "advisory", "CREATE TABLE", "ATTACH", "VACUUM", "day_seal", "END"),
        ],
        120,
    ),
    "restore": (["count(*)", "DETACH", "DROP", "CREATE TABLE", "COPY", "ATTACH", "END"], 40),
    "seal": (["VACUUM", "sealed_day", "COPY", "day_seal"], 20),
    "retry": (["ingest_quarantine", "COPY", "ingest_ledger", "END", "ATTACH"], 20),
}
# For each act: what another process can do in the middle of it.
_MEANWHILE = {
    "write": ["maintain", "restore", "retry", "release", "seal", "claim"],
    "maintain": ["write", "retry", "restore", "release", "seal"],
    "restore": ["write", "retry", "maintain"],
    "seal": ["write", "retry", "maintain"],
    "retry": ["write", "retry", "maintain", "restore"],
}


def faults(act: str) -> st.SearchStrategy[Fault | None]:
    """What happens in the middle of an act; None half of the time."""
    words, most = _POINTS[act]
    points = st.builds(
        Point, st.sampled_from(words), st.sampled_from([0, 0, 0, 1, 2]), st.booleans()
    ) | st.builds(Point, st.just(""), st.integers(0, most), st.booleans())
    return st.none() | st.builds(
        Fault,
        point=points,
        what=st.sampled_from(["kill", "cut", *_MEANWHILE[act]]),
        day=st.sampled_from([0, 0, 1]),
        midnight=st.booleans(),
        terminate=st.booleans(),
    )


DRAFTS = st.lists(
    st.builds(
        Draft,
        entity=st.integers(0, 1),
        twin=st.booleans(),
        id=st.integers(0, 1),
        version=st.integers(0, 2),
        day=st.sampled_from(When),
        moment=st.integers(0, 3),
        content=st.integers(0, 1),
        kind=st.sampled_from([Kind.GOOD] * 8 + [Kind.POISON, Kind.BROKEN]),
    ),
    min_size=1,
    max_size=4,
)

# Time that passes without cron before a step; 0: none, -1: until the next midnight.
HOURS = st.sampled_from([0, 6, -1, 48])
