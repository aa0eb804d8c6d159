"""Whether an installation is distributed, in one that is not."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection
from psycopg import errors

from history.store import distribution
from history.store.database import base
from history.store.distribution import DISTRIBUTED_BY
from tests.db.partitioned import raw

pytestmark = pytest.mark.django_db


@pytest.fixture
def plain() -> Iterator[psycopg.Connection[object]]:
    with raw() as made:
        distribution.forget_answer(made)
        yield made
        distribution.forget_answer(made)


def test_a_plain_installation_is_not_distributed(plain: psycopg.Connection[object]) -> None:
    assert distribution.is_distributed(plain) is False


def test_the_answer_is_remembered_for_the_database(plain: psycopg.Connection[object]) -> None:
    distribution.is_distributed(plain)
    with raw() as other:
        other.autocommit = False
        with pytest.raises(errors.DivisionByZero):
            other.execute("SELECT 1 / 0")
        assert distribution.is_distributed(other) is False, "the server would refuse a question"
        other.rollback()


def test_a_test_can_turn_it_on(plain: psycopg.Connection[object]) -> None:
    distribution._answers_by_database[distribution._identify_database(plain)] = True
    assert distribution.is_distributed(plain)


def test_each_table_has_its_column(plain: psycopg.Connection[object]) -> None:
    for table, column in DISTRIBUTED_BY.items():
        plain.execute(f"SELECT {column} FROM {table} LIMIT 0")


def test_a_session_that_breaks_at_the_question_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[psycopg.Connection[object]] = []

    def broken(found: psycopg.Connection[object]) -> None:
        made.append(found)
        raise errors.AdminShutdown("the session was terminated")

    monkeypatch.setattr(base, "prepare_session", broken)
    session = connection.copy()
    session.settings_dict["OPTIONS"] = {
        name: value for name, value in session.settings_dict["OPTIONS"].items() if name != "pool"
    }
    with pytest.raises(errors.AdminShutdown):
        session.get_new_connection(session.get_connection_params())
    assert made[0].closed
