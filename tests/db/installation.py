"""Some tests run twice: as in a plain installation, and as where the tables are distributed, with
the same SQL on a plain PostgreSQL."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from django.db import connection

from history import distribution
from history.database.distributed import apart
from history.entities import Entity

PLAIN, DISTRIBUTED = "plain", "distributed"
BOTH = (PLAIN, DISTRIBUTED)

_HOME = """
INSERT INTO child_home AS known VALUES (%s, %s, %s, %s)
ON CONFLICT (entity, id, product_instance_id) DO UPDATE
    SET newest_day = excluded.newest_day WHERE known.newest_day < excluded.newest_day
"""
_OTHERS = """
SELECT product_instance_id FROM child_home
WHERE entity = %s AND id = %s AND product_instance_id <> %s
"""
_MOVED = "INSERT INTO child_moved VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"


def in_both(metafunc: pytest.Metafunc, modules: Collection[str], but: Collection[str] = ()) -> None:
    """For pytest_generate_tests: the tests of these modules run twice, but for those named."""
    module, test = metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__
    if module in modules and test not in but:
        metafunc.parametrize("installation", BOTH, indirect=True)


def note_home(entity: Entity, id: str, application: str, moment: datetime) -> None:
    """Note where a version of a child is, as ingest does where the tables are distributed."""
    if not apart():
        return
    with connection.cursor() as cursor:
        cursor.execute(_HOME, [entity.name, id, application, moment.date()])
        cursor.execute(_OTHERS, [entity.name, id, application])
        for (other,) in cursor.fetchall():
            for one, two in ((application, other), (other, application)):
                cursor.execute(_MOVED, [one, entity.name, id, two])


@contextmanager
def counted_as_distributed() -> Iterator[None]:
    """The test's database counts as distributed inside. Its days stay where they are."""
    apart()  # opens the connection
    with pytest.MonkeyPatch.context() as patch:
        # What is known is another one inside: at the end the connection may be closed.
        patch.setattr(distribution, "_known", {})
        patch.setattr(distribution, "free_coordinator", lambda *_: None)
        distribution.remember(connection.connection, True)
        yield


@pytest.fixture(autouse=True)
def installation(request: pytest.FixtureRequest) -> Iterator[str]:
    """PLAIN or DISTRIBUTED, the parameter of the test; PLAIN where it has none.

    Every test has it, because pytest forgets a fixture that is only added with its parameters."""
    found = getattr(request, "param", PLAIN)
    if found == PLAIN:
        yield found
        return
    with_commit = "transactional_db" in request.fixturenames
    request.getfixturevalue("transactional_db" if with_commit else "db")
    with counted_as_distributed():
        yield found
        if with_commit:
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE child_home, child_moved")
