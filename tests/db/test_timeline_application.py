"""Applications with their children."""

from datetime import timedelta

import pytest

from history import timeline
from history.record import ChangeType
from history.timeline import (
    ApplicationQuery,
    BadParameterError,
    Filters,
    NoVersionError,
    OlderThanRetentionError,
)
from tests.db.store import HOST, T0, Store

PERSON, TASK = "participant-role", "product-task"


@pytest.fixture
def loan(store: Store) -> Store:
    """An application, a participant, two tasks of which one goes, and somebody else's task."""
    for version in range(3):
        store.add("A1", version, {"rate": version}, version * 10)
    store.add("P1", 0, {"income": "1"}, 5, entity=PERSON)
    store.add("P1", 1, {"income": "2"}, 15, entity=PERSON, author="anna")
    store.add("T1", 0, {"status": "NEW"}, 6, entity=TASK)
    store.add("T1", 1, "null", 16, entity=TASK, type=ChangeType.DELETE)
    store.add("T2", 0, {"status": "NEW"}, 20, entity=TASK)
    store.add("T9", 0, {"status": "NEW"}, 7, entity=TASK, application="B1")
    return store


def test_an_application_that_is_not_there(loan: Store) -> None:
    with pytest.raises(NoVersionError):
        timeline.application(HOST, ApplicationQuery(id="none"))
    with pytest.raises(OlderThanRetentionError):
        timeline.application(
            HOST,
            ApplicationQuery(id="A1", filters=Filters(until=T0 - timedelta(days=400))),
        )
    nobody = ApplicationQuery(id="A1", filters=Filters(author="nobody"))
    assert timeline.application(HOST, nobody).versions == ()
    with pytest.raises(BadParameterError, match="pageToken"):
        timeline.application(HOST, ApplicationQuery(id="A1", page_token="v1:x"))
