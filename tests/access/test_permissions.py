"""A role opens only the addresses that MATRIX permits. Every route has a row in MATRIX."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from annals.access.roles import ROLES
from history.models import FieldLabel, Person
from ingest.models import Quarantined
from tests.db.store import Store

EVERYBODY = frozenset({None, *ROLES})
LOGINS = frozenset(ROLES)
READERS = frozenset({"support", "auditor", "underwriter", "privacy", "admin"})
COMPLETENESS = LOGINS
OPERATORS = frozenset({"ops", "admin"})
ADMINS = frozenset({"admin"})
OFFICERS = frozenset({"privacy"})
NOBODY: frozenset[str] = frozenset()

ENTITY = "history/product-instance/A1"
# For each route: an example address, and the roles that may open it with GET.
MATRIX: dict[str, tuple[str, frozenset[str | None]]] = {
    "admin/": ("admin/", LOGINS),
    "admin/login/": ("admin/login/", frozenset({None})),
    "admin/jsi18n/": ("admin/jsi18n/", LOGINS),
    "admin/history/": ("admin/history/?q=none-such", READERS),
    "admin/history/<entity:entity>/<id:id>/": (f"admin/{ENTITY}/", READERS),
    "admin/history/<entity:entity>/<id:id>/compare/": (f"admin/{ENTITY}/compare/", READERS),
    "admin/history/<entity:entity>/<id:id>/field/": (f"admin/{ENTITY}/field/?path=/rate", READERS),
    "admin/client/": ("admin/client/?q=none-such", READERS),
    "admin/changes/": ("admin/changes/?author=m.ivanov", READERS),
    "admin/person/<id:login>/": ("admin/person/m.ivanov/", READERS),
    "admin/history/<entity:entity>/<id:id>/state/": (f"admin/{ENTITY}/state/", READERS),
    "admin/history/<entity:entity>/<id:id>/versions/": (f"admin/{ENTITY}/versions/", READERS),
    "admin/history/<entity:entity>/<id:id>/versions/<int:version>/": (
        f"admin/{ENTITY}/versions/0/",
        READERS,
    ),
    "admin/history/<entity:entity>/<id:id>/versions/<int:version>/unmask/": (
        f"admin/{ENTITY}/versions/0/unmask/?path=/secret",
        OFFICERS,
    ),
    "admin/at/<id:id>/": ("admin/at/A1/", READERS),
    "admin/applications/<id:id>/": ("admin/applications/A1/", READERS),
    "admin/gaps/": ("admin/gaps/", OPERATORS),
    "admin/completeness/": ("admin/completeness/", COMPLETENESS),
    "admin/operations/": ("admin/operations/", OPERATORS),
    "admin/days/": ("admin/days/", OPERATORS),
    "admin/quarantine/": ("admin/quarantine/", OPERATORS),
    "admin/quarantine/ask/": ("admin/quarantine/ask/?action=retry", OPERATORS),
    "admin/journal/": ("admin/journal/", OFFICERS),
    "admin/ingest/quarantined/": ("admin/ingest/quarantined/", OPERATORS),
    "admin/ingest/quarantined/<path:object_id>/change/": (
        "admin/ingest/quarantined/1/change/",
        OPERATORS,
    ),
    "admin/ingest/quarantined/<path:object_id>/history/": (
        "admin/ingest/quarantined/1/history/",
        OPERATORS,
    ),
    "admin/ingest/quarantined/add/": ("admin/ingest/quarantined/add/", NOBODY),
    "admin/ingest/quarantined/<path:object_id>/delete/": (
        "admin/ingest/quarantined/1/delete/",
        NOBODY,
    ),
    **{
        f"admin/{model}/{pattern}": (f"admin/{model}/{address}", ADMINS)
        for model in ("history/person", "history/fieldlabel")
        for pattern, address in (
            ("", ""),
            ("add/", "add/"),
            ("<path:object_id>/change/", "{pk}/change/"),
            ("<path:object_id>/delete/", "{pk}/delete/"),
            ("<path:object_id>/history/", "{pk}/history/"),
        )
    },
    # Logins come from identity providers: on these pages no role may add or delete one.
    **{
        f"admin/auth/user/{pattern}": (f"admin/auth/user/{address}", allowed_roles)
        for pattern, address, allowed_roles in (
            ("", "", ADMINS),
            ("add/", "add/", NOBODY),
            ("<path:object_id>/change/", "{pk}/change/", ADMINS),
            ("<path:object_id>/delete/", "{pk}/delete/", NOBODY),
            ("<path:object_id>/history/", "{pk}/history/", ADMINS),
        )
    },
    "api/schema/": ("api/schema/", EVERYBODY),
    "api/docs/": ("api/docs/", EVERYBODY),
    "break-glass/<str:name>/<str:token>/": ("break-glass/none/x/", EVERYBODY),
    "api/v1/completeness": ("api/v1/completeness", COMPLETENESS),
    "api/v1/trace": ("api/v1/trace?entity=product-instance&id=A1&version=0", READERS),
    "api/v1/search": ("api/v1/search?q=A1", READERS),
    "api/v1/changes": ("api/v1/changes?author=m.ivanov", READERS),
    "api/v1/applications/<id:productInstanceId>/history": (
        "api/v1/applications/A1/history",
        READERS,
    ),
    "api/v1/applications/<id:productInstanceId>/at": (
        "api/v1/applications/A1/at?time=2099-01-01",
        READERS,
    ),
    **{
        f"api/v1/history/<str:entity>/<id:id>{pattern}": (f"api/v1/{ENTITY}{address}", READERS)
        for pattern, address in (
            ("", ""),
            ("/compare", "/compare?from=0&to=0"),
            ("/at", "/at?time=2099-01-01"),
            ("/fields", "/fields?path=/rate"),
            ("/blame", "/blame"),
            ("/versions", "/versions"),
            ("/versions/<str:version>", "/versions/0"),
        )
    },
}
# Routes that show nothing: they redirect, accept only POST, answer 404, or need parameters.
ELSEWHERE = {
    "",
    "admin/language/",
    "admin/history/<entity:entity>/<id:id>/newer/",
    "admin/zone/",
    "admin/logout/",
    "admin/autocomplete/",
    "admin/^(?P<app_label>history|ingest|auth)/$",
    "admin/(?P<url>.*)$",
    *(
        f"admin/{model}/<path:object_id>/"
        for model in ("history/person", "history/fieldlabel", "auth/user", "ingest/quarantined")
    ),
    "api/v1/",
}


def list_routes(
    patterns: list[URLPattern | URLResolver] | None = None, before: str = ""
) -> Iterator[str]:
    """Yield every route pattern of the site."""
    for item in get_resolver().url_patterns if patterns is None else patterns:
        name = before + str(item.pattern)
        if isinstance(item, URLResolver):
            yield from list_routes(item.url_patterns, name)
        else:
            yield name


def test_every_route_is_in_permission_matrix() -> None:
    # The routes of identity providers exist only if some are declared, and are open to everybody.
    actual = {route for route in list_routes() if not route.startswith("oidc/")}
    assert actual == MATRIX.keys() | ELSEWHERE


@pytest.fixture
def objects_by_model(store: Store) -> dict[str, object]:
    """Store the objects that the addresses of MATRIX show.

    Returns:
        Primary keys by model, for example {"history/person": "m.ivanov"}.
    """
    store.add("A1", 0, {"rate": "1", "secret": "2"}, 0)
    FieldLabel.objects.create(path="/secret", russian="Тайна", sensitive=True)
    Quarantined.objects.create(
        id=1,
        topic="t",
        topic_id="",
        partition=0,
        offset=0,
        value=b"secret",
        reason="not_json",
        detail="",
        status="new",
        attempts=0,
        first_seen="2026-01-01T00:00:00Z",
        headers=[],
    )
    label = FieldLabel.objects.create(path="/rate", russian="Ставка", kind="text")
    Person.objects.create(login="m.ivanov", full_name="Иванов", kind="person")
    support = User.objects.get(username="support")
    return {"history/person": "m.ivanov", "history/fieldlabel": label.pk, "auth/user": support.pk}


@pytest.mark.parametrize("role", [None, *ROLES])
def test_role_opens_only_permitted_pages(
    role: str | None, client: Client, objects_by_model: dict[str, object]
) -> None:
    if role is not None:
        client.force_login(User.objects.get(username=role))
    wrong = {}
    for pattern, (address, allowed_roles) in MATRIX.items():
        model = "/".join(pattern.split("/")[1:3])
        status = client.get(f"/{address.format(pk=objects_by_model.get(model))}").status_code
        if (role in allowed_roles) != (status == 200) or status not in (200, 302, 401, 403):
            wrong[address] = status
    assert not wrong


@pytest.mark.parametrize("role", [None, *ROLES])
def test_no_role_can_change_history_or_quarantine(
    role: str | None, client: Client, objects_by_model: dict[str, object]
) -> None:
    if role is not None:
        client.force_login(User.objects.get(username=role))
    for address in (
        "/admin/ingest/quarantined/1/delete/",
        "/admin/ingest/quarantined/1/change/",
        "/admin/ingest/quarantined/add/",
    ):
        assert client.post(address, {"post": "yes", "reason": "x"}).status_code in (302, 403)
    action = {"action": "delete_selected", "_selected_action": "1", "post": "yes"}
    client.post("/admin/ingest/quarantined/", action)
    for method in ("post", "put", "patch", "delete"):
        for address in (f"/api/v1/{ENTITY}", "/api/v1/search", "/api/v1/completeness"):
            assert getattr(client, method)(address).status_code in (401, 403, 405)
    assert Quarantined.objects.get().reason == "not_json"
