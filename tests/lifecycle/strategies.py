"""Strategies of the lifecycle test: messages, pauses, and faults at points of a command."""

from collections.abc import Iterable

from hypothesis import strategies as st

from tests.lifecycle.faults import Point
from tests.lifecycle.sent import Draft, MessageQuality, VersionDay
from tests.lifecycle.work import Fault

# For each act, words of the statements at which a fault can happen, and roughly the number of its
# statements.
_POINTS = {
    "write": (["BEGIN", "COPY", "search_key", "ingest_ledger", "END", "ATTACH", "advisory"], 15),
    "maintain": (
        [
            "ingest_quarantine",
            "COPY",
            "part-",
            "manifest",
            "archived_day",
            "count(*)",
            "DETACH",
            "DROP",
            "advisory",
            "CREATE TABLE",
            "ATTACH",
            "VACUUM",
            "day_seal",
            "END",
        ],
        120,
    ),
    "restore": (["count(*)", "DETACH", "DROP", "CREATE TABLE", "COPY", "ATTACH", "END"], 40),
    "seal": (["VACUUM", "sealed_day", "COPY", "day_seal"], 20),
    "pack": (
        [
            "annals_note_change",
            "sealed_day",
            "CREATE TABLE",
            "COPY",
            "REINDEX",
            "changed_row",
            "LOCK TABLE",
            "DETACH",
            "DROP",
            "ATTACH",
            "END",
        ],
        60,
    ),
    "retry": (["ingest_quarantine", "COPY", "ingest_ledger", "END", "ATTACH"], 20),
}
# For each act, the acts that another process can do in the middle of it.
_MEANWHILE = {
    "write": ["maintain", "restore", "retry", "release", "seal", "claim"],
    "maintain": ["write", "retry", "restore", "release", "seal"],
    "restore": ["write", "retry", "maintain"],
    "seal": ["write", "retry", "maintain"],
    "pack": [
        "write",
        "write",
        "retry",
        "maintain",
        "seal",
        "write_behind",
        "write_ahead",
        "insert",
        "insert",
        "insert_again",
    ],
    "retry": ["write", "retry", "maintain", "restore"],
}


PACKS = st.sampled_from(["pack", "pack", "unpack"])
MOSTLY_PACKS = st.sampled_from(["pack", "pack", "pack", "unpack"])


def draw_faults(act: str) -> st.SearchStrategy[Fault | None]:
    """Return a strategy for the fault that interrupts an act. Half of the values are None."""
    return st.none() | st.builds(
        Fault,
        point=_draw_points(act),
        action=st.sampled_from(["kill", "cut", *_MEANWHILE[act]]),
        day=st.sampled_from([0, 0, 1]),
        midnight=st.booleans(),
        terminate=st.booleans(),
    )


def _draw_points(act: str) -> st.SearchStrategy[Point]:
    words, maximum = _POINTS[act]
    return st.builds(
        Point, st.sampled_from(words), st.sampled_from([0, 0, 0, 1, 2]), st.booleans()
    ) | st.builds(Point, st.just(""), st.integers(0, maximum), st.booleans())


# A restore in the middle of a write, a write in the middle of a restore, or a killed restore.
OVERLAPS = st.tuples(
    st.just("write"), st.builds(Fault, _draw_points("write"), st.just("restore"))
) | st.tuples(
    st.just("restore"),
    st.builds(Fault, _draw_points("restore"), st.sampled_from(["write", "write", "kill"])),
)


def _draw_drafts(
    days: Iterable[VersionDay], kinds: Iterable[MessageQuality]
) -> st.SearchStrategy[list[Draft]]:
    return st.lists(
        st.builds(
            Draft,
            entity=st.integers(0, 1),
            twin=st.booleans(),
            id=st.integers(0, 1),
            version=st.integers(0, 2),
            day=st.sampled_from([*days]),
            moment=st.integers(0, 3),
            content=st.integers(0, 1),
            kind=st.sampled_from([*kinds]),
        ),
        min_size=1,
        max_size=4,
    )


DRAFTS = _draw_drafts(
    VersionDay, [MessageQuality.GOOD] * 8 + [MessageQuality.POISON, MessageQuality.BROKEN]
)
LATE = _draw_drafts([VersionDay.ARCHIVED], [MessageQuality.GOOD])
OLDEST = _draw_drafts([VersionDay.OLDEST], [MessageQuality.GOOD])

# The versions of one document that are packed into one block.
HISTORIES = st.integers(2, 3).map(
    lambda count: [
        Draft(version=version, moment=version, day=VersionDay.OLDEST) for version in range(count)
    ]
)

# What happens while a day is packed, and which act follows.
WHILE_PACKED = st.builds(
    Fault,
    _draw_points("pack"),
    st.sampled_from(["insert", "insert", "write", "write_behind", "write_ahead", "insert_again"]),
)
AFTERWARDS = st.sampled_from(["write", "write_behind", "write_behind", "write_ahead"])

# Hours that pass before a step without a run of cron. -1 stands for the next midnight.
HOURS = st.sampled_from([0, 6, -1, 48])
