"""A plugin of pytest, `-p tests.citus.whole`: the database of the tests is a distributed one on the
cluster of ANNALS_TEST_CITUS, so that tests of a plain installation run there as they are."""

import io
import os
from collections.abc import Iterator

import psycopg
import pytest
import pytest_django
from django.conf import settings
from django.core.management import call_command

from history.store.search_index import children
from tests.citus.cluster import create_database, disconnect, use_database

SHARDS = 2  # a day of a table costs as much as its shards


class Fixtures:
    @pytest.fixture(scope="session")
    @classmethod
    def django_db_setup(cls, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
        """Instead of pytest-django's."""
        with (
            create_database(os.environ["ANNALS_TEST_CITUS"]) as cluster,
            django_db_blocker.unblock(),
            use_database(cluster.url),
        ):
            call_command("migrate", verbosity=0)
            call_command("distribute", shards=SHARDS, stdout=io.StringIO())
            # A test in a transaction makes days after it has read.
            name = cluster.fetch_rows("SELECT current_database()")[0][0]
            cluster.connect().execute(
                f'ALTER DATABASE "{name}" SET citus.multi_shard_modify_mode TO sequential'
            )
            disconnect()
            yield

    @pytest.fixture(autouse=True)
    @classmethod
    def unlisted_children(cls, django_db_setup: None) -> Iterator[None]:  # noqa: ARG003
        """Forget after a test that the children of all applications are listed.

        Tests store versions by SQL, which lists no children.
        """
        url = settings.ANNALS.database_url
        yield
        with psycopg.connect(url, autocommit=True) as plain:
            plain.execute("DELETE FROM django_migrations WHERE name = %s", [children.MARK])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is about one server only, with the reason that its mark names."""
    for item in items:
        if (mark := item.get_closest_marker("plain_only")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"about one server only: {mark.args[0]}"))


def pytest_configure(config: pytest.Config) -> None:
    # After pytest-django, whose fixture this one replaces.
    config.pluginmanager.register(Fixtures(), "annals-citus-whole")
