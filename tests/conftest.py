"""What holds for all tests in this process."""

import hypothesis
import pytest
from django.conf import settings

from tests.kafka.fixtures import run_apache
from tests.processes import run_server

__all__ = ["run_apache", "run_server"]

# A failed comparison says what was compared. Before the tests that import it.
pytest.register_assert_rewrite("tests.oracle.checks")

# Hypothesis without its clock: a busy machine is not a failure. Here, because settings count for
# the modules that are imported after them.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


def pytest_configure() -> None:
    # The demo logins are made again after every test that empties the database; a password hash
    # that is slow on purpose would be most of the run.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
