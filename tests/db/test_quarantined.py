"""One bad version that was sent again and again is found without reading all of it in order."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from history import quarantined
from history.base import clock
from history.entities import ROOT
from ingest.models import Quarantined

TIMES = 3_000

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent_again() -> None:
    """Version 1 of A1 TIMES times, the last ones discarded; version 3 once, discarded."""
    moment = clock.now()
    Quarantined.objects.bulk_create(
        Quarantined(
            topic=ROOT.topics[0],
            topic_id="t",
            partition=0,
            offset=offset,
            reason="bad_updated_at",
            status="new" if offset < TIMES - 5 else "discarded",
            first_seen=moment,
            entity=ROOT.name,
            entity_id="A1",
            version=1 if offset < TIMES else 3,
        )
        for offset in range(TIMES + 1)
    )


def found() -> dict[int, int]:
    """The offset of the message of each version."""
    versions = quarantined.of_versions(ROOT, [("A1", 0, 9)])["A1"]
    return {number: each.place.offset for number, each in versions.items()}


def sorted_rows(plan: dict[str, Any]) -> Iterator[float]:
    """How many rows each sort of a plan gets."""
    below = plan.get("Plans", [])
    if plan["Node Type"] in ("Sort", "Incremental Sort"):
        yield from (each["Actual Rows"] for each in below)
    for each in below:
        yield from sorted_rows(each)


def test_the_latest_that_can_be_retried_is_found_without_sorting(sent_again: None) -> None:
    asked: list[tuple[str, Any]] = []

    def note(execute: Callable[..., Any], text: str, values: Any, *more: Any) -> Any:
        asked.append((text, values))
        return execute(text, values, *more)

    with connection.execute_wrapper(note):
        assert found() == {1: TIMES - 6, 3: TIMES}
    [(text, values)] = asked
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ingest_quarantine")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)
        plan = cursor.fetchone()[0]
    [whole] = json.loads(plan) if isinstance(plan, str) else plan
    assert max(sorted_rows(whole["Plan"]), default=0) <= 2
