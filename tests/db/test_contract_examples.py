"""docs/contract.md: the examples whose reason only PostgreSQL finds."""

import pytest

from ingest.source.decode import Reason
from scripts.contract_page import BREACHES, value
from tests.db.ingested import CHILD_SOURCE, Ingested, quarantined
from tests.messages import CHILD, NOW, message


@pytest.mark.parametrize(
    "reason", [reason for reason, each in BREACHES.items() if each.by_database and each.example]
)
def test_the_example_has_its_reason(ingested: Ingested, reason: Reason) -> None:
    breach = BREACHES[reason]
    sent = [each for each in (breach.before, breach.example) if each is not None]
    today = [each.replace("2026-11-22", f"{NOW:%Y-%m-%d}") for each in sent]
    ingested.write(
        *(message(value(each), number, CHILD) for number, each in enumerate(today)),
        source=CHILD_SOURCE,
    )
    [held] = quarantined()
    assert (held["reason"], held["offset"]) == (reason, len(sent) - 1)
    assert held["detail"].startswith(("a number in `data` has more", "another content is stored"))
