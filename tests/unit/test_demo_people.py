"""The logins that the demo prints."""

from annals.access.roles import ROLES
from annals.demo.client import LOGINS


def test_there_is_one_login_for_each_role() -> None:
    assert LOGINS.keys() == ROLES.keys()
