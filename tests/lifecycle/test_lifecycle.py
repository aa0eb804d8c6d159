"""A short run of the random steps of the lifecycle test.

`python -m tests.lifecycle` makes a long run.
"""

import pytest
from pytest_django import DjangoDbBlocker

from tests.lifecycle.defects import DEFECTS, put_back
from tests.lifecycle.machine import record
from tests.lifecycle.run import run
from tests.lifecycle.stand import prepare_template

# With this seed the random examples do every kind of step that the test expects.
SEED = 8


def test_invariants_hold_after_each_random_step_in_the_life_of_days(
    django_db_blocker: DjangoDbBlocker,
) -> None:
    with django_db_blocker.unblock(), prepare_template():
        run(SEED, examples=8, steps=50)
    print(f"\n{record}")
    assert record.steps.keys() >= {"send", "write", "maintain", "retention", "restore", "retry"}
    assert record.steps.keys() >= {"pack", "unpack", "insert", "insert_again", "pack_today"}
    assert record.steps.keys() >= {"write_behind", "write_ahead"}
    assert record.meanwhile.keys() >= {"kill", "cut", "maintain", "write", "restore", "damage"}


@pytest.mark.parametrize("name", DEFECTS)
def test_known_defect_can_be_put_back_into_the_code(name: str) -> None:
    """`python -m tests.lifecycle --defect NAME` shows that the lifecycle test detects it."""
    with put_back(name):
        pass
