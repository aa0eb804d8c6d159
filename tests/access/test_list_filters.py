"""No list on the screens answers questions about fields that it does not show."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

import annals.urls  # noqa: F401 - registers the lists of all apps
from annals.access.local_logins import make_break_glass
from history.models import FieldLabel

REGISTERED = sorted(admin.site._registry, key=lambda model: model._meta.label)
WAYS = ("", "__exact", "__startswith", "__regex", "__gt", "__isnull")


def fields(model: type[Model]) -> Iterator[str]:
    """Every field of the model and of the models that it has relations with, both ways."""
    for field in model._meta.get_fields():
        if not field.is_relation:
            yield field.name
            continue
        query = getattr(field, "related_query_name", None)
        name = query() if field.auto_created and callable(query) else field.name
        yield name
        for further in field.related_model._meta.get_fields():  # type: ignore[union-attr]
            yield f"{name}__{further.name}"
            if further.is_relation and further.name == "user":
                yield f"{name}__user__password"


@pytest.fixture
def root(client: Client, db: None) -> Client:
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


def test_all_lists_are_here() -> None:
    names = {model._meta.label for model in REGISTERED}
    assert {"auth.User", "history.Person", "history.FieldLabel", "ingest.Quarantined"} <= names


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model._meta.label)
def test_a_list_takes_the_filters_of_its_page_only(model: Any, root: Client) -> None:
    one = admin.site._registry[model]
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    tried = [name + way for name in fields(model) for way in WAYS]
    assert "password__startswith" in tried or model is not User
    open_to = {name for name in tried if root.get(address, {name: "1"}).status_code != 400}
    shown = {each[0] if isinstance(each, tuple) else str(each) for each in one.list_filter}
    assert {name.partition("__")[0] for name in open_to} <= shown
    assert {name.rpartition("__")[2] for name in open_to} <= {*shown, "exact", "isnull"}


def test_times_of_logins_are_in_the_zone_of_the_reader(root: Client) -> None:
    login = User.objects.get(username="root")
    for path, moment in (("", login.last_login), (f"{login.pk}/change/", login.date_joined)):
        page = root.get(f"/admin/auth/user/{path}").content.decode()
        assert f'<time datetime="{moment.isoformat().replace("+00:00", "Z")}"' in page


def test_the_filters_of_the_page_work(root: Client) -> None:
    for address in (f"admin:{app}_changelist" for app in (
        *("auth_user", "history_person"),
        *("history_fieldlabel", "ingest_quarantined"),
    )):  # fmt: skip
        page = root.get(reverse(address))
        (listed,) = [page.context["cl"]]
        links = [
            choice["query_string"] for one in listed.filter_specs for choice in one.choices(listed)
        ]
        for link in links:
            assert root.get(reverse(address) + link).status_code == 200, link


def test_an_action_with_nul_among_the_chosen_rows_is_refused(root: Client) -> None:
    chosen = {"action": "delete_selected", "_selected_action": ["x\0"]}
    assert root.post(reverse("admin:history_person_changelist"), chosen).status_code == 400


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model._meta.label)
def test_a_chosen_row_that_no_row_is_is_no_fault(model: Any, root: Client) -> None:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    for key in ("(", "", "1e400", "9" * 5000):
        given = {"action": "delete_selected", "_selected_action": [key], "post": "yes"}
        assert root.post(address, given).status_code in (200, 302, 400, 403)


def test_an_administrator_reads_no_password_and_switches_no_break_glass_login_off(
    client: Client, db: None
) -> None:
    glass = make_break_glass("glass", timezone.now())
    client.force_login(User.objects.get(username="admin"))
    users = reverse("admin:auth_user_changelist")
    assert client.get(users, {"password__startswith": glass.password[:9]}).status_code == 400
    one = reverse("admin:auth_user_change", args=[glass.pk])
    assert client.get(one).status_code == 200
    assert client.post(one, {"groups": [], "user_permissions": []}).status_code == 403
    glass.refresh_from_db()
    assert glass.is_active
    other = User.objects.get(username="support")
    client.post(reverse("admin:auth_user_change", args=[other.pk]), {})
    other.refresh_from_db()
    assert not other.is_active


def test_no_screen_gives_a_role_or_a_permission(root: Client) -> None:
    """Roles are what the provider's claims say: nobody grants to themselves, or to somebody."""
    admin = User.objects.get(username="admin")
    groups = {group.name: group.pk for group in Group.objects.all()}
    sensitive = Permission.objects.get(codename="view_sensitive").pk
    form = {"is_active": "on", "groups": list(groups.values()), "user_permissions": [sensitive]}
    for login in ("admin", "root"):
        root.force_login(User.objects.get(username=login))
        page = reverse("admin:auth_user_change", args=[admin.pk])
        assert root.post(page, form).status_code == 302
        assert [group.name for group in admin.groups.all()] == ["admin"]
        assert not admin.user_permissions.exists()


def test_no_screen_takes_a_mark_away(root: Client) -> None:
    """Marks come with a file of labels: nobody unmarks a field to read it, and marks it again."""
    label = FieldLabel.objects.create(path="/email", russian="Почта", sensitive=True)
    given = {"path": "/email", "russian": "Почта", "kind": "text", "words": "{}"}
    one = reverse("admin:history_fieldlabel_change", args=[label.pk])
    lists = reverse("admin:history_fieldlabel_changelist")
    chosen = {"action": "delete_selected", "_selected_action": [label.pk], "post": "yes"}
    for address, form in (
        (one, given),
        (one, given | {"path": "/other", "sensitive": "on"}),
        (one.replace("/change/", "/delete/"), {"post": "yes"}),
        (lists, chosen),
    ):
        root.post(address, form)
        label.refresh_from_db()
        assert (label.path, label.sensitive) == ("/email", True), address
    added = given | {"path": "/new", "sensitive": "on"}
    assert root.post(reverse("admin:history_fieldlabel_add"), added).status_code == 302
    assert not FieldLabel.objects.get(path="/new").sensitive
