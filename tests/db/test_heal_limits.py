"""What a source can make a run cost: memory, time, and rows of the quarantine."""

from __future__ import annotations

import tracemalloc
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest

from annals.healing import run
from annals.healing.answer import MOST_BYTES, read
from history.fallback import WrongAnswerError
from history.gap_models import GapAnswer, GapSource
from ingest.models import Quarantined
from tests.db.healed import Healed, find, healed
from tests.db.test_heal_hostile import answer, gives
from tests.messages import value
from tests.old_service import OldService, send

__all__ = ["healed"]

pytestmark = pytest.mark.django_db
MANY = 300_000


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """In place of pytest-django's, which begins a transaction: here rows are committed."""


def jump(healed: Healed, to: int, id: str = "J1") -> None:
    """All versions between the first and this one are missing."""
    healed.ingested.write(value(id=id, version=1), value(id=id, version=to))
    find()


def test_an_answer_of_empty_lines_costs_nothing(healed: Healed) -> None:
    jump(healed, MANY)
    with OldService(hostile=gives(*[b""] * (MANY - 2))) as source:
        healed.sources(source.url, seconds=20)
        tracemalloc.start()
        try:
            [done] = healed.heal(code=1)
            assert tracemalloc.get_traced_memory()[1] < 40_000_000
        finally:
            tracemalloc.stop()
    assert done["wrongAnswers"] == 1
    assert Quarantined.objects.count() == 0


def page(handler: BaseHTTPRequestHandler) -> tuple[int, int]:
    """The range that is asked for."""
    asked = parse_qs(urlsplit(handler.path).query)
    return int(asked["from"][0]), int(asked["to"][0])


def endless(handler: BaseHTTPRequestHandler) -> None:
    """One version is gone, and then ask again."""
    first, _ = page(handler)
    send(handler, 200, answer(gone=[[first, first]], next=first + 1))


def honest(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, answer(gone=[page(handler)]))


def test_a_source_without_end_is_left_and_the_next_run_goes_on(
    healed: Healed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_ANSWERS", 5)
    jump(healed, MANY)
    with OldService(hostile=endless) as source, OldService(hostile=honest) as other:
        healed.sources(source.url, other.url)
        left, right = healed.heal(code=1)
        assert (left["asked"], left["unfinished"], len(source.asked)) == (5, True, 5)
        assert (right["unanswerable"], right["unfinished"]) == (MANY - 2, False)
        assert healed.heal(code=1)[0]["unanswerable"] == 5
        assert "from=7&" in source.asked[5]


def test_a_source_has_some_time_of_a_run(healed: Healed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST_SECONDS", 0.0)
    for id in ("J1", "J2"):
        jump(healed, 9, id)
    with OldService(hostile=endless) as source, OldService(hostile=honest) as other:
        healed.sources(source.url, other.url)
        left, right = healed.heal(code=1)
        assert (left["documents"], left["asked"], left["unfinished"]) == (1, 1, True)
        assert (right["documents"], right["asked"]) == (1, 7)
        assert GapSource.objects.filter(attempts__gt=0).count() == 0


def test_a_source_does_not_fill_the_quarantine(
    healed: Healed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_QUARANTINED", 20)
    jump(healed, MANY)

    def bad(handler: BaseHTTPRequestHandler) -> None:
        first, _ = page(handler)
        send(handler, 200, answer(*[b"{}"] * 10, next=first + 10))

    with OldService(hostile=bad) as source:
        healed.sources(source.url)
        [done] = healed.heal(code=1)
        assert (done["quarantined"], len(source.asked)) == (20, 2)
        assert "break the message contract" in done["failed"]
        assert Quarantined.objects.count() == 20
        assert healed.heal(code=1)[0]["later"]
        assert len(source.asked) == 2


def test_a_last_line_without_end_is_not_read() -> None:
    line = b'{"gone":[' + b",".join([b"[2,2]"] * 2_000_000) + b'],"waiting":[],"unrecorded":[],'
    tracemalloc.start()
    try:
        with pytest.raises(WrongAnswerError):
            read(line + b'"next":null}', (2, MANY))
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_a_version_is_no_larger_than_one_of_the_old_service(healed: Healed) -> None:
    jump(healed, 4)
    large = value(id="J1", version=2, data={"text": "x" * MOST_BYTES})
    with OldService(hostile=gives(large, value(id="J1", version=3))) as source:
        healed.sources(source.url, seconds=20)
        [done] = healed.heal()
        assert (done["recovered"], done["refused"], done["quarantined"]) == (1, 1, 0)
        assert "8,388,608 bytes" in GapAnswer.objects.get().detail
        healed.heal()
        assert len(source.asked) == 1
