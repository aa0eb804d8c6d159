"""A key leads to the application that the newest version of the document names, in whatever order
and however often its versions arrived."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from ingest.source.message import Message, TopicPartition
from ingest.store import ledger
from ingest.store.session import connect
from tests.db.ingested import Ingested, searched
from tests.messages import NOW, PARTICIPANT, value

ROLES = TopicPartition(PARTICIPANT, "id-of-participants", 0)
MORNING = NOW.replace(hour=1, minute=0) - timedelta(days=1)
NOON, THE_DAY_BEFORE = MORNING + timedelta(hours=11), MORNING - timedelta(days=1)


@pytest.fixture
def roles(ingested: Ingested) -> Ingested:
    with connect() as plain:
        ingested.claims[ROLES] = ledger.claim(plain, ROLES, 0)
    ingested.next[ROLES] = 0
    return ingested


def participant(version: int, application: str, at: datetime, client: str) -> Message | bytes:
    return value(
        id="P1",
        version=version,
        updatedAt=at.replace(tzinfo=None).isoformat(),
        productInstanceId=application,
        data={"clientId": client},
    )


@pytest.mark.parametrize(
    "moments, batches",
    [
        ((MORNING, NOON), [[0], [1]]),
        ((MORNING, NOON), [[0], [1], [0]]),
        ((MORNING, NOON), [[1], [0]]),
        ((NOON, THE_DAY_BEFORE), [[0], [1]]),
        ((NOON, THE_DAY_BEFORE), [[1, 0]]),
        ((NOON, MORNING), [[0, 1]]),
    ],
    ids=["in order", "repeated", "late", "clock skew of a day", "skew, one batch", "skew of hours"],
)
@pytest.mark.parametrize("later", ["777", "778"], ids=["same number", "number corrected"])
def test_of_the_newest_version(
    roles: Ingested, moments: tuple[datetime, datetime], batches: list[list[int]], later: str
) -> None:
    versions = [
        participant(0, "A1", moments[0], "777"),
        participant(1, "A2", moments[1], later),
    ]
    for batch in batches:
        roles.write(*(versions[number] for number in batch), source=ROLES)
    assert searched("777") == ["A2"]
    assert searched(later) == ["A2"]
