"""Django test clients that are logged in as users of the admin, with all or few permissions."""

from django.contrib.auth.models import Permission, User
from django.test import Client


def make_admin_browser() -> Client:
    """Return a test client that is logged in as a user with all permissions."""
    user, _ = User.objects.get_or_create(username="admin", is_staff=True, is_superuser=True)
    return _log_in(user)


def make_viewer_browser(permission: str) -> Client:
    """Return a test client that is logged in as a user with only this permission."""
    user, _ = User.objects.get_or_create(username=permission, is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename=permission))
    return _log_in(user)


def run_action(page: str, action: str, ids: list[str]) -> None:
    """Run an action of the admin on the selected rows of a list page, with all permissions."""
    form = {"action": action, "_selected_action": ids}
    assert make_admin_browser().post(page, form, follow=True).status_code == 200


def _log_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client
