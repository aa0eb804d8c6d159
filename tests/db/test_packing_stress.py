"""A short stress test: days are swapped under readers and writers.

`python -m tests.swaps` runs it for longer.
"""

import pytest

from tests.db.ingested import Ingested
from tests.swaps.stress import Stress

pytestmark = pytest.mark.usefixtures("tables")


def test_answers_are_right_while_days_are_swapped(tables: None, ingested: Ingested) -> None:
    stress = Stress(ingested)
    stress.run(swaps=6)
    print(stress.did)
    assert stress.wrong == []
    assert {"ingest", "write_sql", "read", "verify", "export", "dump"} <= stress.did.keys()
