"""On a cluster, the consumer's database login from `annals grants` has sufficient rights."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from psycopg.conninfo import make_conninfo

from history.common import private_files
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.citus.cluster import Citus, use_database
from tests.citus.ingest_fixtures import delete_ingested_rows
from tests.db.ingested import CHILD_SOURCE, Ingested, claim_all, find_faults, read_counts
from tests.messages import make_value

WEB, CONSUMER = "annals_citus_web", "annals_citus_consumer"


@pytest.fixture(scope="module")
def granted(distributed: Citus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Citus]:
    """A cluster with the database logins of the web server and of the consumer.

    `annals grants` created the two database logins. Neither is a superuser.
    """
    password: Path = tmp_path_factory.mktemp("logins") / "password"
    private_files.write_private_file(password, "secret\n")
    words = [("web", WEB, str(password)), ("consumer", CONSUMER, str(password))]
    call_command("grants", apply=True, login=words, stdout=StringIO())
    yield distributed
    plain = distributed.connect()
    for login in (WEB, CONSUMER):
        plain.execute(f"DROP ROLE {login}")


@pytest.mark.parametrize("node", [0, 1])
def test_consumer_login_can_store_new_and_repeated_rows(granted: Citus, node: int) -> None:
    delete_ingested_rows(granted)
    bodies = [
        make_value(id=f"t{n}", data={"number": f"N{n}"}, productInstanceId=f"a{n}")
        for n in range(8)
    ]
    with use_database(make_conninfo(granted.urls[node], user=CONSUMER)):
        ingested = Ingested(BatchWriter(open_connection), claim_all())
        ingested.write(*bodies, source=CHILD_SOURCE)
        ingested.write(*bodies, b"no json", source=CHILD_SOURCE)
        ingested.writer.close()
    assert read_counts(CHILD_SOURCE) == {
        "next_offset": 17,
        "read": 17,
        "stored": 8,
        "repeated": 8,
        "quarantined": 1,
    }
    assert find_faults() == []
    delete_ingested_rows(granted)
