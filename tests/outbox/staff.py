"""Who uses the pages of the admin."""

from django.contrib.auth.models import Permission, User
from django.test import Client


def admin() -> Client:
    """The browser of somebody who may do everything."""
    somebody, _ = User.objects.get_or_create(username="admin", is_staff=True, is_superuser=True)
    return _logged_in(somebody)


def viewer(permission: str) -> Client:
    """The browser of somebody who has this permission only."""
    somebody, _ = User.objects.get_or_create(username=permission, is_staff=True)
    somebody.user_permissions.add(Permission.objects.get(codename=permission))
    return _logged_in(somebody)


def act(page: str, action: str, chosen: list[str]) -> None:
    """Do something with the chosen rows of a list."""
    given = {"action": action, "_selected_action": chosen}
    assert admin().post(page, given, follow=True).status_code == 200


def _logged_in(somebody: User) -> Client:
    client = Client()
    client.force_login(somebody)
    return client
