"""A short stress test: days are swapped under readers and writers.

`python -m tests.swaps` runs it for longer.
"""

import pytest

from tests.db.ingested import Ingested
from tests.swaps.stress import SwapStress

pytestmark = pytest.mark.usefixtures("tables")


def test_answers_are_right_while_days_are_swapped(tables: None, ingested: Ingested) -> None:
    stress = SwapStress(ingested)
    stress.run(swaps=6)
    print(stress.act_counts)
    assert stress.wrong == []
    assert {"ingest", "write_sql", "read", "verify", "export", "dump"} <= stress.act_counts.keys()
