"""What holds for all tests in this process."""

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

# A failed comparison says what was compared. Before the tests that import it.
pytest.register_assert_rewrite("tests.oracle.checks")

# What is in them computes most of the time.
BUSY = ("db", "unit")
APACHE = "Apache Kafka"
# One test of these, or the server that it needs, takes minutes: they begin first.
LONG = ("test_keycloak.py", "test_lifecycle.py", "test_oracle.py", "test_kinds.py")

# Hypothesis without its clock: a busy machine is not a failure. Here, because settings count for
# the modules that are imported after them.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


# Longer than nearly every test.
BEFORE_MIDNIGHT = timedelta(seconds=60)


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup() -> None:
    """Days are what the product is about: no test begins where it would see two of them."""
    now = datetime.now(UTC)
    remaining = datetime.combine(now.date() + timedelta(days=1), time.min, UTC) - now
    if remaining < BEFORE_MIDNIGHT:
        sleep(remaining.total_seconds() + 1)


def pytest_configure() -> None:
    # The demo logins are made again after every test that empties the database; a password hash
    # that is slow on purpose would be most of the run.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Each test client makes the middleware again; without this, WhiteNoise would read the size and
    # the time of every static file each time, a tenth of the run.
    settings.WHITENOISE_AUTOREFRESH = True
    # Tests read English; tests/db/test_russian.py reads Russian. tests/postgres.py sets
    # ANNALS_LANGUAGE before Django reads its settings.
    settings.LANGUAGE_CODE = "en"


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Whether the database stays at the end. The server of the run is removed with its databases,
    and a session that is still open would stop DROP DATABASE."""
    return "ANNALS_TEST_DATABASE_URL" not in os.environ


@pytest.fixture(autouse=True)
def no_document_of_other_settings() -> Iterator[None]:
    """The OpenAPI document is made once in a process; tests change the providers in it."""
    yield
    if (schema := sys.modules.get("history.api.schema")) is not None:
        schema.make_openapi_document.cache_clear()


@pytest.hookimpl(tryfirst=True)  # before xdist writes the groups into the ids
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mix the files where several workers take them, and leave out the second broker of what is
    marked with one_broker, unless ANNALS_TEST_BOTH_BROKERS=1, as `scripts/matrix` sets it."""
    if hasattr(config, "workerinput"):
        items[:] = _mixed(items)
    if os.environ.get("ANNALS_TEST_BOTH_BROKERS") == "1":
        return
    left_out = [
        item for item in items if item.get_closest_marker("one_broker") and "[apache" in item.name
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Without groups every worker would make the servers of every file."""
    gc.freeze()  # 4,000 tests and their modules, through which each collection would go
    grouped = getattr(session.config.option, "loadgroup", False)
    if grouped and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist does not group the tests of this pytest")


def _mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """In groups that one worker runs: of each file the tests that roll back, and those that commit.
    What commits comes last, so that nothing that it leaves meets a test that expects an empty
    database. Tests of Apache Kafka are two groups, so that only two workers start one. The files of
    BUSY folders are between the others, which take longer and mostly wait: so the cores always have
    work, and no worker has a long file at the end."""
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
        waiting.reverse()  # tests/system first
        waiting.sort(key=_short)
        busy.sort(key=lambda tests: (_short(tests), -len(tests)))
        for pair in itertools.zip_longest(waiting, busy, fillvalue=[]):
            ordered += itertools.chain(*pair)
    return ordered


def _short(tests: list[pytest.Item]) -> bool:
    return tests[0].path.name not in LONG and "[apache" not in tests[0].name
