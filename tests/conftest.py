"""What holds for all tests in this process."""

from django.conf import settings


def pytest_configure() -> None:
    # The demo logins are made again after every test that empties the database; a password hash
    # that is slow on purpose would be most of the run.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
