"""Lists on the screens cannot be filtered by fields that they do not show."""

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
from annals.access.local_logins import create_break_glass_login
from history.models import FieldLabel

REGISTERED = sorted(admin.site._registry, key=lambda model: model._meta.label)
LOOKUPS = ("", "__exact", "__startswith", "__regex", "__gt", "__isnull")


def list_field_names(model: type[Model]) -> Iterator[str]:
    """Yield every field of the model, and of the models related to it in either direction."""
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


def test_filter_tests_cover_every_admin_list() -> None:
    names = {model._meta.label for model in REGISTERED}
    assert {"auth.User", "history.Person", "history.FieldLabel", "ingest.Quarantined"} <= names


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model._meta.label)
def test_admin_list_refuses_filters_that_its_page_does_not_offer(model: Any, root: Client) -> None:
    model_admin = admin.site._registry[model]
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    tried = [name + lookup for name in list_field_names(model) for lookup in LOOKUPS]
    assert "password__startswith" in tried or model is not User
    open_to = {name for name in tried if root.get(address, {name: "1"}).status_code != 400}
    offered = {
        item[0] if isinstance(item, tuple) else str(item) for item in model_admin.list_filter
    }
    assert {name.partition("__")[0] for name in open_to} <= offered
    assert {name.rpartition("__")[2] for name in open_to} <= {*offered, "exact", "isnull"}


def test_moments_on_pages_about_logins_are_shown_in_time_zone_of_viewer(root: Client) -> None:
    login = User.objects.get(username="root")
    for path, moment in (("", login.last_login), (f"{login.pk}/change/", login.date_joined)):
        page = root.get(f"/admin/auth/user/{path}").content.decode()
        assert f'<time datetime="{moment.isoformat().replace("+00:00", "Z")}"' in page


def test_filter_links_of_lists_work(root: Client) -> None:
    for address in (
        f"admin:{app}_changelist"
        for app in (
            "auth_user",
            "history_person",
            "history_fieldlabel",
            "ingest_quarantined",
        )
    ):
        page = root.get(reverse(address))
        (listed,) = [page.context["cl"]]
        links = [
            choice["query_string"]
            for filter_spec in listed.filter_specs
            for choice in filter_spec.choices(listed)
        ]
        for link in links:
            assert root.get(reverse(address) + link).status_code == 200, link


def test_action_is_refused_when_selected_id_has_nul(root: Client) -> None:
    form_data = {"action": "delete_selected", "_selected_action": ["x\0"]}
    assert root.post(reverse("admin:history_person_changelist"), form_data).status_code == 400


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model._meta.label)
def test_action_on_unknown_id_causes_no_server_error(model: Any, root: Client) -> None:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    for key in ("(", "", "1e400", "9" * 5000):
        form_values = {"action": "delete_selected", "_selected_action": [key], "post": "yes"}
        assert root.post(address, form_values).status_code in (200, 302, 400, 403)


def test_administrator_cannot_filter_by_password_or_deactivate_break_glass_login(
    client: Client, db: None
) -> None:
    glass = create_break_glass_login("glass", timezone.now())
    client.force_login(User.objects.get(username="admin"))
    users = reverse("admin:auth_user_changelist")
    assert client.get(users, {"password__startswith": glass.password[:9]}).status_code == 400
    address_of_one = reverse("admin:auth_user_change", args=[glass.pk])
    assert client.get(address_of_one).status_code == 200
    assert client.post(address_of_one, {"groups": [], "user_permissions": []}).status_code == 403
    glass.refresh_from_db()
    assert glass.is_active
    second = User.objects.get(username="support")
    client.post(reverse("admin:auth_user_change", args=[second.pk]), {})
    second.refresh_from_db()
    assert not second.is_active


def test_administrator_cannot_grant_roles_or_permissions_on_page_of_a_login(root: Client) -> None:
    """Roles come only from the claims of the identity provider."""
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


def test_mark_of_label_cannot_be_changed_on_any_screen(root: Client) -> None:
    """Marks come from a file, so that an administrator cannot unmask a field even briefly."""
    label = FieldLabel.objects.create(path="/email", russian="Почта", sensitive=True)
    form_values = {"path": "/email", "russian": "Почта", "kind": "text", "words": "{}"}
    address_of_one = reverse("admin:history_fieldlabel_change", args=[label.pk])
    lists = reverse("admin:history_fieldlabel_changelist")
    form_data = {"action": "delete_selected", "_selected_action": [label.pk], "post": "yes"}
    for address, form in (
        (address_of_one, form_values),
        (address_of_one, form_values | {"path": "/other", "sensitive": "on"}),
        (address_of_one.replace("/change/", "/delete/"), {"post": "yes"}),
        (lists, form_data),
    ):
        root.post(address, form)
        label.refresh_from_db()
        assert (label.path, label.sensitive) == ("/email", True), address
    added = form_values | {"path": "/new", "sensitive": "on"}
    assert root.post(reverse("admin:history_fieldlabel_add"), added).status_code == 302
    assert not FieldLabel.objects.get(path="/new").sensitive
