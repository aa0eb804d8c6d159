"""No content can do harm on the screens, or make a page fail or grow without limit."""

import json
import re

import msgspec
import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from history.admin.components.cards import OPEN_ROWS
from history.admin.components.links import MOST_ROWS
from history.models import FieldLabel, Person
from history.store.catalogue import labels
from history.timeline import budget
from tests.db.screens import A1, SCREENS, WHOLE, find_link, read_text
from tests.db.store import Store

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def test_hostile_content_is_escaped(store: Store, support: Client) -> None:
    FieldLabel.objects.update_or_create(
        entity="", path="/evil", defaults={"russian": EVIL, "kind": "text"}
    )
    Person.objects.create(login="evil", full_name=EVIL)
    labels.forget_catalogue()
    identity = "A<b>\"'/&?#é"
    store.add(identity, 0, {"name": EVIL, EVIL: {EVIL: [EVIL] * 3}}, 0, author=EVIL[:64])
    store.add(identity, 1, {"name": EVIL * 20, "evil": EVIL}, 1, author="evil", client="<i>'\"&")
    result = support.get("/admin/history/", {"q": identity})
    whole = result.headers["Location"]
    timeline = whole.replace("/applications/", "/history/product-instance/")
    pages = [
        support.get(whole),
        support.get(timeline),
        support.get(f"{timeline}versions/1/"),
        support.get(f"{timeline}compare/?from=0&to=1"),
        support.get(f"{timeline}state/"),
        support.get("/admin/history/", {"q": f"{identity} {EVIL}"}),
        support.get("/admin/"),
    ]
    escaped_count = 0
    for page in pages:
        assert page.status_code == 200
        body = page.content.decode()
        escaped_count += "&lt;script&gt;alert" in body
        assert "<script>alert" not in body
        assert "<img src=x" not in body
        assert "A<b>" not in body
    assert escaped_count >= 6


@pytest.mark.parametrize(
    "data",
    [
        "[]",
        "17",
        '"text"',
        '{"a":' * 400 + "1" + "}" * 400,
        '{"": {"": ""}, "~": "/", "a/b": 1, "*": 2, "[x=1]": 3}',
        '{"n": 1e2, "m": -0.0, "big": ' + "9" * 5000 + "}",
        '{"list": [' + ",".join(f'{{"pid": "{n}", "v": {n}}}' for n in range(1000)) + "]}",
        '{"text": "' + "я" * 40000 + '"}',
    ],
)
def test_pages_open_for_unusual_documents(store: Store, support: Client, data: str) -> None:
    store.add("A1", 0, {"before": [1]}, 0)
    store.add("A1", 1, data, 1)
    store.add("A1", 2, {"after": None}, 2)
    for address in (A1, f"{A1}versions/1/", f"{A1}compare/?from=0&to=1", f"{A1}state/"):
        assert support.get(address).status_code == 200, address


@pytest.fixture
def pages_by_address(documents: Store, client: Client) -> list[tuple[str, HttpResponse]]:
    """Return the address and the answer of every screen, as the administrator gets it."""
    client.force_login(User.objects.get(username="admin"))
    addresses = [
        "/admin/",
        "/admin/history/person/",
        "/admin/history/person/add/",
        "/admin/history/person/m.ivanov/change/",
        "/admin/history/person/m.ivanov/delete/",
        "/admin/history/fieldlabel/",
        "/admin/auth/user/",
        "/admin/completeness/",
        "/admin/ingest/quarantined/",
        "/admin/auth/user/{user}/change/",
        *SCREENS,
    ]
    user = User.objects.get(username="support").pk
    pages = [
        (address, client.get(address.replace("{user}", str(user)), follow=True))
        for address in addresses
    ]
    # The last page is about a document that does not exist.
    assert [page.status_code for _, page in pages] == [*[200] * (len(pages) - 1), 404]
    return pages


def test_pages_obey_content_security_policy(
    pages_by_address: list[tuple[str, HttpResponse]], client: Client
) -> None:
    client.logout()
    pages = [*pages_by_address, ("/admin/login/", client.get("/admin/login/"))]
    for address, page in pages:
        policy = page.headers["Content-Security-Policy"]
        assert "unsafe" not in policy, address
        assert "script-src 'self'" in policy, address
        body = page.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)", body), address
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", body), address
        outside = re.findall(r'(?:src|href|action)="((?:https?:)?//[^"]*)', body)
        assert not outside, (address, outside)


def test_every_page_has_labels_for_screen_readers(
    pages_by_address: list[tuple[str, HttpResponse]],
) -> None:
    fields = 0
    for address, page in pages_by_address:
        body = page.content.decode()
        assert '<html lang="en"' in body, address
        assert "<main" in body, address
        labels = set(re.findall(r'<label[^>]*for="([^"]*)"', body))
        for field in re.findall(r"<(?:input|select|textarea)\b[^>]*>", body):
            if re.search(r'type="(hidden|submit|checkbox|radio)"|name="action"', field):
                continue
            id_match = re.search(r'\bid="([^"]*)"', field)
            assert "aria-label" in field or (id_match and id_match[1] in labels), (address, field)
            fields += 1
    assert fields > 20


@pytest.mark.parametrize("model", ["auth/user", "history/person", "history/fieldlabel"])
def test_title_of_list_page_is_name_of_the_list(model: str, client: Client, db: None) -> None:
    client.force_login(User.objects.get(username="admin"))
    shown_text = read_text(client.get(f"/admin/{model}/"))
    assert "to change" not in shown_text
    assert "In total: " in shown_text


def test_pages_are_russian_until_language_is_switched(
    documents: Store, support: Client, settings: Settings
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, language="ru")
    page = support.get("/admin/", headers={"accept-language": "en-US,en"})
    assert "Кто, что и когда изменил" in read_text(page)
    assert page.headers["Content-Language"] == "ru"
    back = support.post("/admin/language/", {"language": "en", "next": A1})
    assert back.headers["Location"] == A1
    page_text = read_text(support.get(A1))
    assert "version 1" in page_text
    assert "unknown login" in page_text
    assert support.get("/admin/language/").status_code == 405
    elsewhere = support.post(
        "/admin/language/", {"language": "ru", "next": "https://evil.example/"}
    )
    assert "evil" not in elsewhere.headers["Location"]


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_changes_that_do_not_fit_in_timeline_are_on_linked_pages(
    address: str, store: Store, support: Client
) -> None:
    FieldLabel.objects.update_or_create(
        entity="", path="/t7", defaults={"russian": "Служебное", "kind": "technical"}
    )
    labels.forget_catalogue()
    fields = {f"{'t' if n < 10 else 'f'}{n}": n for n in range(2 * MOST_ROWS + 50)}
    for version in range(3):
        store.add("A1", version, {key: n + version for key, n in fields.items()}, version)
    card = support.get(address).content.decode()
    assert MOST_ROWS <= card.count('<td class="old">') <= MOST_ROWS + OPEN_ROWS
    expected_paths = {f"/{key}" for key in fields}
    for version in (2, 1):
        part = card[card.index(f'id="v{version}') :].partition("</article>")[0]
        seen = re.findall(r'title="(/[tf]\d+)', part)
        (rest_urls,) = re.findall(r'<a href="([^"]*)">Show the rest', part)
        for _ in range(9):
            if not rest_urls:
                break
            page = support.get(rest_urls.replace("&amp;", "&")).content.decode()
            seen += re.findall(r'title="(/[tf]\d+)', page)
            rest_urls = find_link(page, "next")
        assert len(seen) == len(set(seen)), "a change is shown twice"
        assert set(seen) == expected_paths
        assert seen[-1] == "/t7"  # technical fields come last


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_filter_by_field_shows_change_of_that_field_first(
    address: str, store: Store, support: Client
) -> None:
    for version in range(2):
        numbers = [{"pid": f"p{n}", "n": n + version} for n in range(2 * MOST_ROWS)]
        document = {"numbers": numbers, "zz": version, "amount": version}
        store.add("A1", version, document, version)
    shown_text = support.get(address, {"path": "/zz"}).content.decode()
    assert re.findall(r'title="(/[^ "]*)', shown_text.partition("</table>")[0])[:2] == [
        "/zz",
        "/amount",
    ]
    (rest_urls,) = re.findall(r'<a href="([^"]*)">Show the rest', shown_text)
    page = support.get(rest_urls.replace("&amp;", "&")).content.decode()
    plain = support.get(address).content.decode()
    assert re.findall(r'title="(/[^ "]*)', plain.partition("</table>")[0])[0] == "/amount"
    assert not {"/zz", "/amount"} & set(re.findall(r'title="(/[^ "]*)', page))


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\u061c"])
def test_text_direction_characters_are_shown_as_escapes(
    mark: str, store: Store, support: Client
) -> None:
    for version in range(2):
        document = {"name": f"a{mark}1{version}", f"k{mark}": version}
        store.add("A1", version, document, version)
    escape = mark.encode("unicode_escape").decode()
    for address in (A1, WHOLE, f"{A1}versions/0/", f"{A1}state/", f"{A1}compare/?from=0&to=1"):
        page = support.get(address).content.decode()
        assert mark not in page
        assert f"a{escape}1" in page
    response = support.get(f"{A1}versions/0/?download=1")
    assert json.loads(response.content)["name"] == f"a{mark}10"
    # The form keeps the text as it was typed.
    assert f'value="/k{mark}"' in support.get(A1, {"path": f"/k{mark}"}).content.decode()
    assert mark not in support.get("/admin/").content.decode()


def test_page_draws_limited_number_of_values(
    store: Store, support: Client, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """A list of 60 lists of 60 lists of 5 numbers takes 36 KB, and would be 18,000 values on a
    page."""
    # Without these limits a slow machine shows one version only, or none.
    monkeypatch.setattr(budget, "PAGE_SECONDS", 60)
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, request_seconds=120)
    for version in range(2):
        wide = [[[version] * 5] * 60] * 60
        store.add("A1", version, {"wide": wide, "after": version}, version)
    page = support.get(A1)
    assert page.status_code == 200
    assert page.content.count(b"<dt>") < 5_000
    assert re.search(r"\d+ more in the snapshot", read_text(page))


def test_page_cuts_long_text_and_download_is_complete(store: Store, support: Client) -> None:
    text = "слово " * 85_000
    store.add("A1", 0, {"remark": f"{text} конец"}, 0)
    store.add("A1", 1, {"remark": f"{text} другой конец"}, 1)
    version = f"{A1}versions/1/"
    for address in (A1, WHOLE, f"{A1}state/", f"{A1}compare/?from=0&to=1", version):
        page = support.get(address).content.decode()
        assert len(page) < 120_000, address
        assert re.search("more characters? in the snapshot", page), address
    shown_text = support.get(f"{version}?as=json").content.decode()
    assert len(shown_text) < 300_000
    assert re.search("more characters? (is|are) in the file", shown_text)
    assert "другой конец" in support.get(f"{version}?download=1").content.decode()


BASE = "/api/v1/history/product-instance/A1"
CALLS = [
    BASE,
    f"{BASE}?path=/top",
    f"{BASE}/versions/1",
    f"{BASE}/compare?from=0&to=1",
    f"{BASE}/at?time=2999-01-01",
    f"{BASE}/blame",
    f"{BASE}/fields?path=/deep",
    "/api/v1/applications/A1/history",
    "/api/v1/applications/A1/at?time=2999-01-01",
]
PAGES = [A1, WHOLE, f"{A1}versions/1/", f"{A1}versions/1/?download=1", f"{A1}state/"]


def make_nested_document(levels: int, inside: str, nesting: str) -> str:
    """Return JSON with `inside` nested this many levels deep, in objects, lists, or lists of
    objects."""
    first, last = {"object": ('{"a":', "}"), "list": ("[", "]"), "items": ('[{"x":', "},{}]")}[
        nesting
    ]
    return f'{{"top": 1, "deep": {first * levels}{inside}{last * levels}}}'


@pytest.fixture(params=["object", "list", "items"])
def nesting(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.mark.parametrize("levels", [60, 150, 450, 900, 2500])
def test_api_calls_and_pages_open_for_deeply_nested_snapshot(
    store: Store, support: Client, levels: int, nesting: str
) -> None:
    store.add("A1", 0, make_nested_document(levels, "1", nesting), 0)
    store.add("A1", 1, make_nested_document(levels, "2", nesting), 1)
    store.add(
        "A1",
        2,
        make_nested_document(levels, "2", nesting).replace('"top": 1', '"top": 3'),
        2,
    )
    support.raise_request_exception = False
    for call in [*PAGES, f"{A1}compare/?from=0&to=1", f"{A1}?path=/deep", *CALLS]:
        response = support.get(call)
        assert response.status_code == 200, (call, response.content[:200])
    shown_text = support.get(f"{A1}versions/1/?download=1").content.decode()
    assert "".join(shown_text.split()) == make_nested_document(levels, "2", nesting).replace(
        " ", ""
    )


@pytest.mark.parametrize("key", ["x" * 301, "я" * 1000, "x" * 7000])
def test_api_accepts_long_key_path_that_blame_returned(
    store: Store, client: Client, key: str
) -> None:
    client.force_login(User.objects.get(username="auditor"))
    for version in range(3):
        store.add("A1", version, {key: [{"pid": key, "n": version // 2}], "x": version}, version)
    result = json.loads(client.get(f"{BASE}/blame").content)["data"]["blame"]
    path = next(leaf["keyPath"] for leaf in result if leaf["path"].endswith("/n"))
    assert len(path) > 2 * len(key)
    versions = json.loads(client.get(BASE, {"path": path}).content)["data"]["history"]
    assert [version["version"] for version in versions] == [2]
    values = json.loads(client.get(f"{BASE}/fields", {"path": path}).content)["data"]["values"]
    assert [value["version"] for value in values] == [2, 0]
