"""A row that PostgreSQL refuses as bad goes to quarantine. After an error with a different cause,
the batch is written again, and nothing is lost."""

import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors

from history.kinds.entities import BY_NAME
from history.store.search_index import children
from ingest.consumer import metrics
from ingest.consumer.writers import AbandonedError, RetryingWriter
from ingest.messages.decode import Reason
from ingest.messages.message import TopicPartition
from ingest.store import ledger
from ingest.store.ledger import Connection
from ingest.store.session import open_connection
from ingest.store.sqlstate import ErrorCause
from ingest.store.transaction import BatchWriter
from scripts import contract_page
from scripts.contract_page import BREACHES
from tests.consuming import wait_until
from tests.db.as_role import PASSWORD, build_url
from tests.db.ingested import (
    CHILD_SOURCE,
    Ingested,
    find_faults,
    list_ids,
    list_quarantined,
    query,
    read_counts,
    search_ids,
)
from tests.messages import (
    CHILD_TOPIC,
    NOW,
    PARTICIPANT_TOPIC,
    make_message,
    make_value,
    make_value_with_data,
)
from tests.unit.test_sqlstate import NOTABLE

ROLE = BY_NAME["participant-role"]
ROLE_SOURCE = TopicPartition(PARTICIPANT_TOPIC, "id-of-participants", 0)


@contextmanager
def refuse_rows(table: str, column: str, code: str) -> Iterator[None]:
    """Let a trigger raise the SQLSTATE `code` for rows with the text "refused" in `column`."""
    with open_connection("test") as plain:
        plain.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF NEW.{column} = 'refused' THEN"
            f" RAISE EXCEPTION 'said' USING ERRCODE = '{code}', CONSTRAINT = 'of_theirs'; END IF;"
            " RETURN NEW; END $$"
        )
        plain.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        try:
            yield
        finally:
            plain.execute(f"DROP TRIGGER refuse ON {table}")
            plain.execute("DROP FUNCTION refuse")


BODIES = [make_value(id="a"), make_value(id="b", author="refused"), make_value(id="c"), b"bad"]


@pytest.mark.parametrize("name", NOTABLE[ErrorCause.BATCH].split())
@pytest.mark.plain_only("needs a trigger on a table of versions, which Citus refuses")
def test_refused_row_is_quarantined_and_other_rows_of_batch_are_stored(
    ingested: Ingested, name: str
) -> None:
    with refuse_rows("product_instance_aud", "author", getattr(errors, name).sqlstate):
        ingested.write(*BODIES)
    assert list_ids() == ["a", "c"]
    assert [row["offset"] for row in list_quarantined()] == [1, 3]
    assert read_counts() == {"next_offset": 4, "read": 4, "stored": 2, "quarantined": 2}
    assert find_faults() == []


@pytest.mark.parametrize(
    "name", [*NOTABLE[ErrorCause.OUTAGE].split(), *NOTABLE[ErrorCause.INSTALLATION].split()]
)
@pytest.mark.plain_only("needs a trigger on a table of versions, which Citus refuses")
def test_outage_or_wrong_installation_loses_and_quarantines_no_message(
    ingested: Ingested, name: str
) -> None:
    batch = ingested.make_batch(*BODIES)
    with refuse_rows("product_instance_aud", "author", getattr(errors, name).sqlstate):
        for _ in range(2):
            with pytest.raises(getattr(errors, name)):
                ingested.store(batch)
    assert (list_ids(), list_quarantined(), read_counts()) == ([], [], {})
    ingested.store(batch)
    assert list_ids() == ["a", "b", "c"]
    assert [row["offset"] for row in list_quarantined()] == [3]
    assert find_faults() == []


@pytest.mark.plain_only("needs a trigger on a table of versions, which Citus refuses")
def test_outage_during_search_for_bad_row_quarantines_nothing(ingested: Ingested) -> None:
    batch = ingested.make_batch(make_value_with_data(b'{"a":1e400000}', id="z"), *BODIES)
    with (
        refuse_rows("product_instance_aud", "author", errors.DiskFull.sqlstate),
        pytest.raises(errors.DiskFull),
    ):
        ingested.store(batch)
    assert (list_ids(), list_quarantined(), read_counts()) == ([], [], {})


def test_search_finds_application_to_which_participant_moved_within_one_batch(
    ingested: Ingested,
) -> None:
    with open_connection() as plain:
        ingested.claims[ROLE_SOURCE] = ledger.claim_partition(plain, ROLE_SOURCE, 0)
    ingested.next[ROLE_SOURCE] = 0
    ingested.write(
        *(
            make_value(id="p", version=n, productInstanceId=application, data={"clientId": "77"})
            for n, application in enumerate(["A1", "A2"])
        ),
        source=ROLE_SOURCE,
    )
    assert list_ids(ROLE) == ["p", "p"]
    assert list_quarantined() == []
    [key] = query("SELECT value, id FROM search_key WHERE name <> %s", children.KEY_NAME)
    assert [*key.values()] == ["77", "p"]
    assert search_ids("77") == ["A2"]


@pytest.mark.parametrize("code", ["22000", "21000", "54000", "23505"])
@pytest.mark.plain_only("needs a trigger on a table of versions, which Citus refuses")
def test_row_with_refused_search_key_is_quarantined(ingested: Ingested, code: str) -> None:
    with refuse_rows("search_key", "value", code):
        ingested.write(
            make_value(id="a", data={"number": "1"}),
            make_value(id="b", data={"number": "refused"}),
            make_value(id="c", data={"number": "3"}),
        )
    assert list_ids() == ["a", "c"]
    assert [row["offset"] for row in list_quarantined()] == [1]
    assert [row["value"] for row in query("SELECT value FROM search_key ORDER BY 1")] == ["1", "3"]
    assert find_faults() == []


@pytest.mark.parametrize(
    "make, drop, constraint",
    [
        (
            "ALTER TABLE product_instance_aud ADD CONSTRAINT theirs CHECK (author <> 'refused')",
            "ALTER TABLE product_instance_aud DROP CONSTRAINT theirs",
            "the constraint theirs",
        ),
        pytest.param(
            "CREATE UNIQUE INDEX theirs ON product_instance_aud (updated_at, (author = 'refused'))"
            " WHERE author = 'refused'",
            "DROP INDEX theirs",
            "the constraint product_instance_aud_",  # PostgreSQL renames it in a partition
            marks=pytest.mark.plain_only("a unique index of a cluster needs the id"),
        ),
    ],
    ids=["check", "unique"],
)
def test_row_that_an_added_constraint_refuses_is_quarantined_with_name_of_the_constraint(
    ingested: Ingested, make: str, drop: str, constraint: str
) -> None:
    same = {"author": "refused", "version": 0}
    with open_connection("test") as plain:
        plain.execute(make)
        try:
            ingested.write(
                make_value(id="a"), make_value(id="b", **same), make_value(id="c", **same), b"bad"
            )
        finally:
            plain.execute(drop)
    rows = list_quarantined()
    assert constraint in rows[0]["detail"]
    assert len(list_ids()) + len(rows) == 4
    assert list_ids()[0] == "a"
    assert find_faults() == []


def test_consumer_reports_missing_privilege_and_waits_for_it(
    ingested: Ingested, caplog: pytest.LogCaptureFixture
) -> None:
    def connect_without_privilege() -> Connection:
        connection = open_connection()
        connection.execute("SET ROLE nobody_special")
        return connection

    with open_connection("test") as plain:
        plain.execute("CREATE ROLE nobody_special LOGIN")  # the nodes of a cluster log in as it
        plain.execute(
            "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO nobody_special"
        )
        plain.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO nobody_special")
        ingested.write(make_value(id="a"))
        plain.execute("REVOKE INSERT ON product_instance_aud FROM nobody_special")
        batch = ingested.make_batch(make_value(id="b"), b"bad")
        writer = RetryingWriter(BatchWriter(connect_without_privilege))
        writing = threading.Thread(target=writer.write, args=(batch, ingested.claims, {}))
        try:
            with caplog.at_level(logging.WARNING):
                writing.start()
                writing.join(0.5)
                assert writing.is_alive()
                assert (list_ids(), list_quarantined()) == (["a"], [])
                plain.execute("GRANT INSERT ON product_instance_aud TO nobody_special")
                writing.join(120)
        finally:
            writer.stop_waiting()
            writing.join(120)
            writer.batch_writer.close()
            plain.execute("DROP OWNED BY nobody_special")
            plain.execute("DROP ROLE nobody_special")
    assert list_ids() == ["a", "b"]
    assert len(list_quarantined()) == 1
    [message] = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
    assert "run `annals grants --apply` as the owner of the tables" in message
    assert "permission denied for table product_instance_aud" in message
    assert find_faults() == []


POISON = make_value_with_data(b'{"a":1e400000}', id="a")


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param([POISON] * 1_500, id="equal"),
        pytest.param(
            [make_value_with_data(b'{"a":1e400000,"n":%d}' % n, id="a") for n in range(1_500)],
            id="one key",
        ),
        pytest.param(
            [make_value_with_data(b'{"a":1e400000}', id=str(n)) for n in range(1_500)],
            id="all different",
        ),
    ],
)
def test_thousands_of_bad_rows_in_one_batch_are_quarantined(
    ingested: Ingested, bodies: list[bytes]
) -> None:
    ingested.write(*bodies, make_value(id="a"), make_value(id="a"), make_value(id="b"))
    assert list_ids() == ["a", "b"]
    expected = {"next_offset": 1_503, "read": 1_503, "stored": 2, "repeated": 1}
    assert read_counts() == {**expected, "quarantined": 1_500}
    assert {row["reason"] for row in list_quarantined()} == {"number_out_of_range"}
    assert find_faults() == []


def test_first_good_row_of_a_version_is_stored_when_batch_has_many_bad_rows(
    ingested: Ingested,
) -> None:
    """A later row of a version counts as repeated if it equals the first good row, and is
    quarantined if it differs. The first good row of the document x is stored before the batch."""
    ingested.write(make_value(id="x"))
    other_row = make_value(id="a", author="other")
    ingested.write(
        make_value(id="x", author="other"),
        *[POISON] * 40,
        make_value(id="a"),
        POISON,
        other_row,
        make_value(id="a"),
        make_value(id="x"),
    )
    assert list_ids() == ["a", "x"]
    expected = {"next_offset": 47, "read": 47, "stored": 2, "repeated": 2}
    assert read_counts() == {**expected, "quarantined": 43}
    differing = [row for row in list_quarantined() if row["reason"] == "divergent_duplicate"]
    assert [row["offset"] for row in differing] == [1, 44]
    assert find_faults() == []


def test_writer_reports_failure_only_while_it_repeats_a_write(ingested: Ingested) -> None:
    """The metric annals_database_up shows this state. See tests/system/test_stuck_consumer.py."""

    def raise_away() -> Connection:
        raise psycopg.OperationalError("away")

    writer = RetryingWriter(BatchWriter(raise_away))
    assert not writer.failing
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer.write, ingested.make_batch(make_value()), ingested.claims, {})
        try:
            wait_until(lambda: writer.failing, "the write does not fail")
        finally:
            writer.stop_waiting()
        with pytest.raises(AbandonedError):
            writing.result()
    assert not writer.failing


def read_refused_metric() -> float:
    [family] = metrics.LOGIN_REFUSED.collect()
    [value] = [sample.value for sample in family.samples if sample.labels["server"] == "postgresql"]
    return value


@pytest.mark.plain_only("pg_hba.conf of the cluster may let in any password")
def test_consumer_waits_while_postgresql_refuses_its_login(
    db: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The password of a running consumer was changed. The consumer reports this, and continues when
    the password works again."""
    login = f"refused_{os.getpid()}"
    with open_connection("test") as plain, ThreadPoolExecutor(1) as thread:
        plain.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{PASSWORD}'")
        try:
            writer = RetryingWriter(
                BatchWriter(lambda: psycopg.connect(build_url(login), autocommit=True))
            )
            assert writer.claim({}) == []  # the password works
            writer.batch_writer.close()
            plain.execute(f"ALTER ROLE {login} PASSWORD 'another'")
            claiming = thread.submit(writer.claim, {})
            wait_until(read_refused_metric, "the refusal is in no metric")
            assert writer.failing
            plain.execute(f"ALTER ROLE {login} PASSWORD '{PASSWORD}'")
            assert claiming.result(120) == []
            writer.batch_writer.close()
        finally:
            plain.execute(f"DROP ROLE {login}")
    assert read_refused_metric() == 0
    message = next(
        record.getMessage() for record in caplog.records if record.levelno == logging.ERROR
    )
    assert message.startswith("PostgreSQL at ")
    assert "refuses the login" in message
    assert message.endswith("Nothing is lost; trying again")
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    "reason",
    [reason for reason, breach in BREACHES.items() if breach.by_database and breach.example],
)
def test_example_message_on_contract_page_is_quarantined_with_its_reason(
    ingested: Ingested, reason: Reason
) -> None:
    breach = BREACHES[reason]
    sent = [body for body in (breach.before, breach.example) if body is not None]
    today = [body.replace("2026-11-22", f"{NOW:%Y-%m-%d}") for body in sent]
    ingested.write(
        *(
            make_message(contract_page.expand_example(body), number, CHILD_TOPIC)
            for number, body in enumerate(today)
        ),
        source=CHILD_SOURCE,
    )
    [row] = list_quarantined()
    assert (row["reason"], row["offset"]) == (reason, len(sent) - 1)
    assert row["detail"].startswith(("a number in `data` has more", "another content is stored"))
