"""The consumer's connection does not depend on what somebody set for its login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql

from ingest.store.connect import connect
from tests.db.ingested import Ingested, query, rows
from tests.messages import value

SETTINGS = {
    "client_encoding": "WIN1251",
    "default_transaction_isolation": "repeatable read",
    "statement_timeout": "200ms",
}


@pytest.fixture
def set_for_the_login(db: None) -> Iterator[None]:
    """Defaults that an administrator gave the login in this database."""
    [place] = query("SELECT current_user AS login, current_database() AS database")
    names = {name: sql.Identifier(text) for name, text in place.items()}

    def change(action: str) -> None:
        with connect("test") as plain:
            for name, given in SETTINGS.items():
                words = {"name": sql.Identifier(name), "given": sql.Literal(given)}
                alter = sql.SQL("ALTER ROLE {login} IN DATABASE {database} ").format(**names)
                plain.execute(alter + sql.SQL(action).format(**words))

    change("SET {name} = {given}")
    yield
    change("RESET {name}")


@pytest.mark.usefixtures("set_for_the_login")
def test_text_is_stored_as_it_came_whatever_the_encoding_of_the_login(ingested: Ingested) -> None:
    ingested.write(value(author="Прыгунов", data={"type": "Квартира"}))
    [row] = rows()
    assert row["author"] == "Прыгунов"
    assert row["text"] == '{"type": "Квартира"}'


@pytest.mark.usefixtures("set_for_the_login")
def test_a_batch_that_takes_longer_than_a_statement_of_the_login_may_is_not_cancelled() -> None:
    with connect("test") as plain:
        plain.execute("SELECT pg_sleep(0.4)")


@pytest.mark.usefixtures("set_for_the_login")
def test_each_statement_sees_what_was_committed_before_it() -> None:
    """Writers look for the mark of a sealer after they have locked the day's table."""
    with connect("test") as plain:
        assert plain.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
