"""Marked fields are masked in every answer for everybody without the permission to read them."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonpatch
import msgspec
import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError
from django.db import connection

from annals.access.models import JournalEntry
from history import labels, masking
from history.documents.jsonb import to_store
from history.entities import BY_NAME, ROOT
from history.models import FieldLabel, SearchKey
from tests.access.test_masking_properties import (
    addresses,
    exported,
    leaks,
    login,
    mark,
    paths_in,
    whole_answer,
)
from tests.db.store import HOST, T0, Store, minute

PERSON = BY_NAME["participant-role"]
SECRETS = {
    "4509-112233",
    "4510-998877",
    "+79161234567",
    "+79037654321",
    "Канарейкин Пётр",
    "181818.25",
}
MARKS = ("/passport", "/phones/*/number", "/fullName", "/income", "/clientId", "/number")
FIRST: dict[str, Any] = {
    "pid": "P1",
    "fullName": "Канарейкин Пётр",
    "role": "BORROWER",
    "clientId": "+79161234567",
    "income": 181818.25,
    "passport": {"series": "4509-112233", "issued": None},
    "phones": [{"type": "MOBILE", "number": "+79161234567"}],
}
SECOND = {
    **FIRST,
    "passport": {"series": "4510-998877"},
    "phones": [{"type": "WORK", "number": "+79037654321"}, *FIRST["phones"]],
}
THIRD = {**SECOND, "role": "GUARANTOR", "income": 181818.250}


@pytest.fixture
def people(store: Store) -> Iterator[Store]:
    """An application and a participant with marked fields, in three versions."""
    store.add("A1", 0, {"number": "+79161234567", "name": "Ипотека"}, 0)
    for version, data in enumerate((FIRST, SECOND, THIRD)):
        store.add("P1", version, data, version, entity=PERSON)
    SearchKey.objects.create(
        value="+79161234567", name="clientId", entity=PERSON.name, id="P1", day=T0.date()
    )
    SearchKey.objects.create(
        value="+79161234567", name="number", entity=ROOT.name, id="A1", day=T0.date()
    )
    mark(*MARKS)
    yield store
    labels.forget()


def data(response: Any) -> Any:
    assert response.status_code == 200, response.content
    return json.loads(response.content)["data"]


API = "/api/v1/history/participant-role/P1"
PAGE = "/admin/history/participant-role/P1"


@pytest.mark.parametrize("role", ["support", "auditor", "admin", "privacy"])
def test_no_answer_has_a_marked_value(role: str, people: Store) -> None:
    client = login(role)
    found = {key for name in (API, f"{API}/blame") for key in paths_in(client.get(name).content)}
    assert any("masked:" not in key for key in found)
    wrong = {
        address: leaked
        for entity, id, versions in ((ROOT, "A1", [0]), (PERSON, "P1", [0, 1, 2]))
        for address in addresses(entity, id, versions, sorted({*found, "/fullName", "/phones"}))
        if (leaked := leaks(whole_answer(client, address), SECRETS))
    }
    assert not wrong


def test_who_may_read_sensitive_fields_reads_the_documents_as_they_are(people: Store) -> None:
    client = login("underwriter")
    newest = data(client.get(API))["history"][0]
    assert newest["entity"] == THIRD
    assert leaks(client.get(f"{PAGE}/state/").content, SECRETS)
    assert data(client.get("/api/v1/search?q=%2B79161234567"))["results"]


def test_a_masked_value_says_that_it_changed_and_whether_two_are_the_same(people: Store) -> None:
    history = data(login("support").get(API))["history"]
    newest, middle, first = (version["entity"] for version in history)
    assert newest["passport"] == middle["passport"] != first["passport"]
    assert middle["phones"][1] == first["phones"][0] != middle["phones"][0]
    assert newest["income"] == middle["income"] == first["income"]
    assert [each["path"] for each in history[0]["changes"]] == ["/role"]
    assert "/passport" in [each["path"] for each in history[1]["changes"]]
    for younger, older in ((0, middle), (1, first)):
        patched = jsonpatch.apply_patch(older, history[younger]["diff"])
        assert patched == history[younger]["entity"]


def test_a_masked_key_finds_nothing_and_nobody_learns_that_it_exists(people: Store) -> None:
    support = login("support")
    for text in ("+79161234567", "+70000000000"):
        found = data(support.get("/api/v1/search", {"q": text}))
        found.pop("completeness")
        assert found == {"results": [], "limited": False}
        page = support.get("/admin/history/", {"q": text})
        assert page.status_code == 200
        assert "participant-role/P1" not in page.content.decode()


def test_the_help_of_the_search_names_only_keys_that_can_be_searched(people: Store) -> None:
    pages = [
        login(role).get("/admin/history/").content.decode() for role in ("support", "underwriter")
    ]
    assert ["номер клиента" in page for page in pages] == [False, True]


def test_a_key_is_found_by_the_kinds_that_do_not_mask_it(people: Store) -> None:
    mark("/number", entity=ROOT.name)
    found = data(login("support").get("/api/v1/search", {"q": "+79161234567"}))["results"]
    assert [each["foundBy"] for each in found] == ["clientId"]


def test_a_filter_by_a_masked_value_finds_as_if_the_value_were_its_token(people: Store) -> None:
    client = login("support")
    right, wrong = (
        client.get(API, {"path": f"/phones/[number={number}]/type"}).content
        for number in ("+79037654321", "+70000000000")
    )
    assert json.loads(right)["data"]["history"] == json.loads(wrong)["data"]["history"] == []


def test_a_key_path_with_a_token_can_be_asked_for(people: Store) -> None:
    FieldLabel.objects.update_or_create(
        path="/phones/*/pid", defaults={"russian": "x", "sensitive": True}
    )
    labels.forget()
    phones = [{"pid": "secret-pid-1", "n": 1}, {"pid": "secret-pid-2", "n": 1}]
    people.add("K1", 0, {"phones": phones}, 0, entity=PERSON)
    people.add("K1", 1, {"phones": [phones[1], {**phones[0], "n": 2}]}, 1, entity=PERSON)
    client = login("support")
    history = data(client.get("/api/v1/history/participant-role/K1"))["history"]
    (path,) = [each["keyPath"] for each in history[0]["changes"] if each["kind"] == "changed"]
    assert re.fullmatch(r"/phones/\[pid=masked:[0-9a-f]{16}\]/n", path)
    found = data(client.get("/api/v1/history/participant-role/K1", {"path": path}))["history"]
    assert [each["version"] for each in found] == [1]


@pytest.mark.parametrize("call", ["", "/fields"])
def test_a_path_into_a_masked_part_is_refused_by_name(call: str, people: Store) -> None:
    answer = login("support").get(f"{API}{call}", {"path": "/passport/series"})
    assert answer.status_code == 400
    assert json.loads(answer.content)["error"]["parameter"] == "path"
    assert login("underwriter").get(f"{API}{call}", {"path": "/passport/series"}).status_code == 200
    whole = login("support").get("/api/v1/applications/A1/history", {"path": "/passport/series"})
    assert whole.status_code == 400


def test_a_superuser_reads_sensitive_fields_only_with_the_permission(people: Store) -> None:
    User.objects.filter(username="admin").update(is_superuser=True)
    admin = User.objects.get(username="admin")
    address = f"{API}/versions/0"
    assert leaks(login("admin").get(address).content, SECRETS) == []
    admin.user_permissions.add(Permission.objects.get(codename="view_sensitive"))
    assert leaks(login("admin").get(address).content, SECRETS)
    admin.user_permissions.clear()
    assert leaks(login("admin").get(address).content, SECRETS) == []


def test_an_export_is_masked_unless_somebody_says_why(
    people: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """In this process: an export of its own transaction's rows."""
    assert leaks(exported(PERSON, "jsonl"), SECRETS) == []
    clear = exported(PERSON, "jsonl", "--unmasked", "court order 12\nforged")
    assert leaks(clear, SECRETS)
    assert "unmasked export of participant-role" in caplog.text
    assert "\nforged" not in caplog.text


def test_export_is_refused_when_it_would_mask_with_a_key_of_its_own(
    people: Store, settings: Any
) -> None:
    production = msgspec.structs.replace(settings.ANNALS, demo=False, secret_key=None)
    settings.ANNALS = production
    with pytest.raises(CommandError, match="ANNALS_SECRET_KEY is missing"):
        exported(PERSON, "jsonl")
    settings.ANNALS = msgspec.structs.replace(production, secret_key="k" * 50)
    assert leaks(exported(PERSON, "jsonl"), SECRETS) == []
    settings.ANNALS = production
    assert exported(PERSON, "jsonl", "--unmasked", "court order 12")


@pytest.mark.parametrize("reason", ["", "  "])
def test_an_export_is_not_unmasked_without_a_reason(reason: str, people: Store) -> None:
    with pytest.raises(CommandError, match="say why"):
        exported(PERSON, "jsonl", "--unmasked", reason)


def test_a_document_with_nul_is_masked_too(people: Store) -> None:
    stored = to_store(b'{"fullName":"nul\\u0000canary","role":"\\u0000"}').decode()
    people.add("N1", 0, stored, 3, entity=PERSON)
    address = "/api/v1/history/participant-role/N1/versions/0"
    assert b"canary" not in login("support").get(address).content + exported(PERSON)
    assert b"nul\\u0000canary" in login("underwriter").get(address).content


def test_a_document_that_is_marked_as_a_whole(people: Store) -> None:
    mark("/**")
    support, page = login("support"), "/admin/history/participant-role/P1"
    found = data(support.get(API))["history"]
    assert [each["diff"] for each in found] == [
        [{"op": "replace", "path": "", "value": found[0]["entity"]}],
        [{"op": "replace", "path": "", "value": found[1]["entity"]}],
        None,
    ]
    for address in addresses(PERSON, "P1", [0, 1, 2], [""]):
        assert leaks(whole_answer(support, address), SECRETS) == []
    officer, address = login("privacy"), f"{page}/versions/0/unmask/"
    form = {"path": "", "reason": "complaint 17"}
    shown = officer.post(address, form)
    assert leaks(shown.content, {"4509-112233"}) == ["4509-112233"]


def test_a_file_of_labels_that_knows_nothing_of_marks_unmasks_nothing(people: Store) -> None:
    labels.load(json.dumps([{"path": "/passport", "russian": "Паспорт"}]).encode())
    labels.load(labels.SHIPPED.read_bytes())
    assert FieldLabel.objects.get(entity="", path="/passport").sensitive
    labels.load(
        json.dumps([{"path": "/passport", "russian": "Паспорт", "sensitive": False}]).encode()
    )
    assert not FieldLabel.objects.get(entity="", path="/passport").sensitive


def test_a_document_that_is_read_for_nobody_is_masked(people: Store) -> None:
    from history import timeline

    assert leaks(timeline.newest(HOST, PERSON, "P1").snapshot, SECRETS) == []
    in_clear = HOST.in_clear()
    assert json.loads(timeline.newest(in_clear, PERSON, "P1").snapshot) == THIRD
    assert leaks(timeline.newest(HOST, PERSON, "P1").snapshot, SECRETS) == []


def test_the_example_of_marks_masks_what_it_names_in_the_documents_of_the_simulator(
    people: Store,
) -> None:
    mark()
    example = Path(__file__).parents[2] / "annals/demo/sensitive-fields.json"
    labels.load(example.read_bytes())
    document = {**FIRST, "birthDate": "1980-01-02", "email": None, "registrationAddress": "x"}
    people.add("E1", 0, {**document, "owner": {"phone": "1"}}, 3, entity=PERSON)
    address = "/api/v1/history/participant-role/E1/versions/0"
    found = data(login("support").get(address))["entity"]
    names = ("passport", "income", "birthDate", "email", "registrationAddress")
    masked = [*(found[name] for name in names), found["phones"][0]["number"]]
    assert all(map(masking.is_token, [*masked, found["owner"]["phone"]]))
    assert (found["role"], found["phones"][0]["type"]) == ("BORROWER", "MOBILE")


def test_a_masked_value_names_nothing_on_a_screen(people: Store) -> None:
    page = login("support").get(f"{PAGE}/").content.decode()
    assert re.search(r"<h1>P1</h1>", page)
    assert "MOBILE (" in page
    assert re.search(r"•••• [0-9a-f]{6} \(", page) is None


def test_the_etag_of_a_version_follows_the_mask(people: Store) -> None:
    """Somebody who sees the values does not confirm them to somebody who does not."""
    address = f"/api/v1/history/{PERSON.name}/P1/versions/1"
    masked, whole = login("support"), login("underwriter")
    tags = [each.get(address).headers["ETag"] for each in (masked, whole)]
    assert tags[0] != tags[1]
    for reader, tag in ((masked, tags[1]), (whole, tags[0])):
        assert reader.get(address, headers={"If-None-Match": tag}).status_code == 200
    labels.forget()
    FieldLabel.objects.filter(path="/income").update(sensitive=False)
    assert masked.get(address, headers={"If-None-Match": tags[0]}).status_code == 200


def test_a_version_that_was_removed_is_not_answered_with_304(people: Store) -> None:
    reader = login("support")
    address = f"/api/v1/history/{PERSON.name}/P1/versions/1"
    tag = reader.get(address).headers["ETag"]
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {PERSON.table} WHERE id = 'P1'")
    gone = reader.get(address, headers={"If-None-Match": tag})
    assert (gone.status_code, gone.headers["Cache-Control"]) == (404, "no-store")


# One value, unmasked.

UNMASK = f"{PAGE}/versions/0/unmask/"
ASK = f"{UNMASK}?path=/passport"


def test_the_privacy_officer_sees_one_value_with_a_reason(
    people: Store, caplog: pytest.LogCaptureFixture
) -> None:
    officer = login("privacy")
    page = officer.get(f"{PAGE}/versions/0/").content.decode()
    assert f"{UNMASK}?path=%2Fpassport" in page
    asked = officer.get(UNMASK, {"path": "/passport"})
    assert leaks(asked.content, SECRETS) == []
    assert "из них букв или цифр — не меньше 3" in asked.content.decode()
    assert "novalidate" in asked.content.decode()
    form = {"path": "/passport", "reason": "complaint 17\nforged"}
    with caplog.at_level(logging.WARNING, logger="history.masking"):
        answer = officer.post(UNMASK, form)
    assert leaks(answer.content, SECRETS) == ["4509-112233"]
    assert answer.headers["Cache-Control"] == "no-store"
    (line,) = [each.getMessage() for each in caplog.records if "unmasked" in each.getMessage()]
    assert "privacy" in line
    assert "/passport" in line
    assert "complaint 17\\nforged" in line
    assert leaks(officer.get(f"{PAGE}/").content, SECRETS) == []
    assert leaks(officer.get(UNMASK, {"path": "/passport"}).content, SECRETS) == []


INVISIBLE = ["\u200b", "\u2800", "\u3164", "\u00ad", "\u202e", "."]


@pytest.mark.parametrize(
    "reason", ["", "     ", "abcd", "x" * 501, *(each * 5 for each in INVISIBLE)]
)
def test_without_a_reason_nothing_is_unmasked(reason: str, people: Store) -> None:
    officer = login("privacy")
    form = {"path": "/passport", "reason": reason}
    answer = officer.post(UNMASK, form)
    assert answer.status_code == 200
    assert b'class="errorlist"' in answer.content
    assert leaks(answer.content, SECRETS) == []


def test_the_journal_has_the_path_and_the_reason(people: Store) -> None:
    officer = login("privacy")
    officer.get(ASK)
    for _ in range(2):  # by a reload of the answer, or by a double click
        shown = officer.post(UNMASK, {"path": "/passport", "reason": "complaint 17"})
        assert leaks(shown.content, SECRETS) == ["4509-112233"]
    officer.post(UNMASK, {"path": "/passport", "reason": ""})
    login("support").post(UNMASK, {"path": "/passport", "reason": "complaint 17"})
    found = JournalEntry.objects.order_by("at").values_list("action", "outcome", "path", "reason")
    assert list(found) == [
        ("version", "shown", "", ""),
        *[("unmask", "shown", "/passport", "complaint 17")] * 2,
        ("version", "shown", "", ""),  # the page that asks for the reason
        ("unmask", "refused", "", ""),
    ]


def test_the_field_has_its_place_in_the_row_whatever_the_address_is(people: Store) -> None:
    form = {"path": "/passport", "reason": "complaint 17"}
    for query in ("a" * 1100, "%20%2FfullName", "path=/fullName"):
        officer = login("privacy")
        answer = officer.post(f"{UNMASK}?{query}", form)
        assert leaks(answer.content, SECRETS) == ["4509-112233"]
    found = JournalEntry.objects.filter(action="unmask").values_list("path", flat=True)
    assert list(found) == ["/passport"] * 3


def test_two_versions_of_one_number_are_told_apart(people: Store) -> None:
    for number in (1, 2):
        people.add("P9", 7, {"passport": f"4509-00000{number}"}, number, entity=PERSON)
    officer, form = login("privacy"), {"path": "/passport", "reason": "complaint 17"}
    for number in (1, 2):
        at = quote(minute(number).isoformat())
        address = f"/admin/history/{PERSON.name}/P9/versions/7/unmask/?at={at}"
        assert f"4509-00000{number}" in officer.post(address, form).content.decode()
    unmasked = JournalEntry.objects.filter(action="unmask").order_by("at")
    found = unmasked.values_list("path", "moment")
    assert list(found) == [("/passport", minute(number).isoformat()) for number in (1, 2)]


@pytest.mark.parametrize("failure", ["refuse", "answer"])
def test_without_a_row_in_the_journal_nothing_is_unmasked(
    failure: str, people: Store, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, journal_failure=failure)
    officer = login("privacy")
    form = {"path": "/passport", "reason": "complaint 17"}
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {JournalEntry._meta.db_table} RENAME TO gone")
    answer = officer.post(UNMASK, form)
    assert answer.status_code == 503
    assert leaks(answer.content, SECRETS) == []


@pytest.mark.parametrize("path", ["/role", "/none", "", "/passport/series", "/phones/0"])
def test_only_a_masked_value_can_be_unmasked(path: str, people: Store) -> None:
    form = {"path": path, "reason": "complaint 17"}
    assert login("privacy").post(UNMASK, form).status_code == 404
    assert login("privacy").get(UNMASK, form).status_code == 404


@pytest.mark.parametrize("role", ["support", "auditor", "ops", "admin", "underwriter"])
def test_others_may_not_unmask(role: str, people: Store) -> None:
    client = login(role)
    assert client.get(UNMASK, {"path": "/passport"}).status_code == 403
    answer = client.post(UNMASK, {"path": "/passport", "reason": "complaint 17"})
    assert answer.status_code == 403
    assert leaks(answer.content, SECRETS) == []
    if role != "ops":
        assert "/unmask/" not in client.get(f"{PAGE}/versions/0/").content.decode()
