"""Settings, hooks and fixtures for all tests, and the order in which several workers run them."""

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from time import sleep

import hypothesis
import pytest
from django.conf import settings

from tests.kafka.fixtures import run_apache
from tests.processes import run_server

__all__ = ["run_apache", "run_server"]

# pytest then shows the compared values if an assertion of this module fails. It must be called
# before a test imports the module.
pytest.register_assert_rewrite("tests.oracle.checks")

# Folders whose tests compute most of the time. The other tests mostly wait for servers.
BUSY = ("db", "unit")
APACHE = "Apache Kafka"
# Files that begin first, because one of their tests, or a server that it needs, takes minutes.
LONG = ("test_keycloak.py", "test_lifecycle.py", "test_oracle.py", "test_kinds.py")

# Hypothesis without time limits, so that tests do not fail on a busy machine. The profile is loaded
# here because it only affects modules that are imported later.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


# Nearly every test takes less time.
BEFORE_MIDNIGHT = timedelta(seconds=60)


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup() -> None:
    """Wait until midnight has passed if it is near: many tests fail if the date changes."""
    now = datetime.now(UTC)
    remaining = datetime.combine(now.date() + timedelta(days=1), time.min, UTC) - now
    if remaining < BEFORE_MIDNIGHT:
        sleep(remaining.total_seconds() + 1)


def pytest_configure() -> None:
    # The demo logins are created again after every test that empties the database. With a secure
    # password hash, which is slow on purpose, this would take most of the time.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Each test client creates the middleware again. Without this setting WhiteNoise would then read
    # the size and date of every static file, which took a tenth of the time.
    settings.WHITENOISE_AUTOREFRESH = True
    # Tests expect English texts. Only tests/db/test_russian.py expects Russian ones.
    # tests/postgres.py sets ANNALS_LANGUAGE before Django reads its settings.
    settings.LANGUAGE_CODE = "en"


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Whether pytest-django keeps the database at the end.

    The temporary server of the run is removed with its databases. DROP DATABASE would fail if a
    session is still open.
    """
    return "ANNALS_TEST_DATABASE_URL" not in os.environ


@pytest.fixture(autouse=True)
def fresh_openapi_document() -> Iterator[None]:
    """Clear the cached OpenAPI document after a test, because tests change what it shows."""
    yield
    if (schema := sys.modules.get("history.api.schema")) is not None:
        schema.make_openapi_document.cache_clear()


@pytest.hookimpl(tryfirst=True)  # before xdist writes the groups into the ids
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests if several workers run them, and deselect `one_broker` tests on Apache Kafka.

    Tests with the mark `one_broker` run on the embedded broker only, unless `scripts/matrix` sets
    ANNALS_TEST_BOTH_BROKERS=1.
    """
    if hasattr(config, "workerinput"):
        items[:] = _order_in_groups(items)
    if os.environ.get("ANNALS_TEST_BOTH_BROKERS") == "1":
        return
    left_out = [
        item for item in items if item.get_closest_marker("one_broker") and "[apache" in item.name
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if xdist did not group the tests: every worker would start the servers of every file."""
    gc.freeze()  # later garbage collections skip the 4,000 tests and their modules
    grouped = getattr(session.config.option, "loadgroup", False)
    if grouped and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist does not group the tests of this pytest")


def _order_in_groups(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in groups. One worker runs all tests of a group.

    In a file, the tests that roll back their transaction form one group, and the tests that commit
    form a second group. Groups that commit come last: their tests can leave rows, and tests that
    roll back expect an empty database. Tests with Apache Kafka form only two groups, so that only
    two workers start a broker.

    Groups that compute (BUSY) alternate with groups that mostly wait, so that the cores always have
    work. Among the groups that roll back, and among those that commit, long groups come first, so
    that no worker still runs a long group when all other workers have finished.
    """
    groups: dict[tuple[bool, str], list[pytest.Item]] = {}
    with_apache: dict[Path, int] = {}
    for item in items:
        commits, name = "transactional_db" in getattr(item, "fixturenames", ()), str(item.path)
        if "[apache" in item.name:
            name = f"{APACHE} {with_apache.setdefault(item.path, len(with_apache)) % 2}"
        item.add_marker(pytest.mark.xdist_group(f"{name} {commits}"))
        groups.setdefault((commits, name), []).append(item)
    ordered: list[pytest.Item] = []
    for last in (False, True):
        waiting: list[list[pytest.Item]] = []
        busy: list[list[pytest.Item]] = []
        for (commits, name), tests in groups.items():
            if commits is last:
                (busy if Path(name).parent.name in BUSY else waiting).append(tests)
        waiting.reverse()  # tests/system comes first
        waiting.sort(key=_is_short)
        busy.sort(key=lambda tests: (_is_short(tests), -len(tests)))
        for pair in itertools.zip_longest(waiting, busy, fillvalue=[]):
            ordered += itertools.chain(*pair)
    return ordered


def _is_short(tests: list[pytest.Item]) -> bool:
    return tests[0].path.name not in LONG and "[apache" not in tests[0].name
