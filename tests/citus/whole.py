"""A pytest plugin, `-p tests.citus.whole`: tests written for a single server use a cluster.

All tests of the run use one distributed database on the cluster of ANNALS_TEST_CITUS.
"""

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

SHARDS = 2  # few, because creating a day takes longer with each shard


class WholeRunFixtures:
    @pytest.fixture(scope="session")
    @classmethod
    def django_db_setup(cls, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
        """Use a distributed database for all tests, not the test database of pytest-django."""
        with (
            create_database(os.environ["ANNALS_TEST_CITUS"]) as cluster,
            django_db_blocker.unblock(),
            use_database(cluster.url),
        ):
            call_command("migrate", verbosity=0)
            call_command("distribute", shards=SHARDS, stdout=io.StringIO())
            # Tests create days in a transaction in which they have already read. In its default
            # mode Citus refuses that.
            name = cluster.fetch_rows("SELECT current_database()")[0][0]
            cluster.connect().execute(
                f'ALTER DATABASE "{name}" SET citus.multi_shard_modify_mode TO sequential'
            )
            disconnect()
            yield

    @pytest.fixture(autouse=True)
    @classmethod
    def unmark_search_key(cls, django_db_setup: None) -> Iterator[None]:  # noqa: ARG003
        """After each test, delete the row of django_migrations that says that children are indexed.

        Tests store versions with SQL, which does not add children to the table search_key.
        """
        url = settings.ANNALS.database_url
        yield
        with psycopg.connect(url, autocommit=True) as plain:
            plain.execute("DELETE FROM django_migrations WHERE name = %s", [children.MARK])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests with the mark `plain_only`, which are about a single server."""
    for item in items:
        if (mark := item.get_closest_marker("plain_only")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"about one server only: {mark.args[0]}"))


def pytest_configure(config: pytest.Config) -> None:
    # A plugin that is registered after pytest-django replaces its fixture.
    config.pluginmanager.register(WholeRunFixtures(), "annals-citus-whole")
