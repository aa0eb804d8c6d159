"""Marked fields are masked in every answer to a viewer without the permission to read them."""

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
from history.documents.jsonb import to_store
from history.kinds.entities import BY_NAME, ROOT
from history.models import FieldLabel, SearchKey
from history.policy import masking
from history.store.catalogue import labels
from tests.access.test_masking_properties import (
    fetch_whole_answer,
    find_key_paths,
    find_leaks,
    generate_addresses,
    log_in,
    run_export,
    set_marks,
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
def store_with_marked_fields(store: Store) -> Iterator[Store]:
    """Store an application and a participant role with three versions. Both have marked fields."""
    store.add("A1", 0, {"number": "+79161234567", "name": "Ипотека"}, 0)
    for version, data in enumerate((FIRST, SECOND, THIRD)):
        store.add("P1", version, data, version, entity=PERSON)
    SearchKey.objects.create(
        value="+79161234567", name="clientId", entity=PERSON.name, id="P1", day=T0.date()
    )
    SearchKey.objects.create(
        value="+79161234567", name="number", entity=ROOT.name, id="A1", day=T0.date()
    )
    set_marks(*MARKS)
    yield store
    labels.forget_catalogue()


def read_data(response: Any) -> Any:
    assert response.status_code == 200, response.content
    return json.loads(response.content)["data"]


API = "/api/v1/history/participant-role/P1"
PAGE = "/admin/history/participant-role/P1"


@pytest.mark.parametrize("role", ["support", "auditor", "admin", "privacy"])
def test_answers_have_no_marked_values(role: str, store_with_marked_fields: Store) -> None:
    client = log_in(role)
    actual = {
        key for name in (API, f"{API}/blame") for key in find_key_paths(client.get(name).content)
    }
    assert any("masked:" not in key for key in actual)
    wrong = {
        address: leaked
        for entity, id, versions in ((ROOT, "A1", [0]), (PERSON, "P1", [0, 1, 2]))
        for address in generate_addresses(
            entity, id, versions, sorted({*actual, "/fullName", "/phones"})
        )
        if (leaked := find_leaks(fetch_whole_answer(client, address), SECRETS))
    }
    assert not wrong


def test_login_with_permission_for_sensitive_fields_sees_unmasked_snapshots(
    store_with_marked_fields: Store,
) -> None:
    client = log_in("underwriter")
    newest = read_data(client.get(API))["history"][0]
    assert newest["entity"] == THIRD
    assert find_leaks(client.get(f"{PAGE}/state/").content, SECRETS)
    assert read_data(client.get("/api/v1/search?q=%2B79161234567"))["results"]


def test_mask_tokens_differ_only_when_values_differ(store_with_marked_fields: Store) -> None:
    history = read_data(log_in("support").get(API))["history"]
    newest, middle, first = (version["entity"] for version in history)
    assert newest["passport"] == middle["passport"] != first["passport"]
    assert middle["phones"][1] == first["phones"][0] != middle["phones"][0]
    assert newest["income"] == middle["income"] == first["income"]
    assert [item["path"] for item in history[0]["changes"]] == ["/role"]
    assert "/passport" in [entry["path"] for entry in history[1]["changes"]]
    for younger, older in ((0, middle), (1, first)):
        patched = jsonpatch.apply_patch(older, history[younger]["diff"])
        assert patched == history[younger]["entity"]


def test_search_by_masked_business_key_finds_nothing(store_with_marked_fields: Store) -> None:
    support = log_in("support")
    for text in ("+79161234567", "+70000000000"):
        actual = read_data(support.get("/api/v1/search", {"q": text}))
        actual.pop("completeness")
        assert actual == {"results": [], "limited": False}
        page = support.get("/admin/history/", {"q": text})
        assert page.status_code == 200
        assert "participant-role/P1" not in page.content.decode()


def test_search_help_names_only_searchable_keys(store_with_marked_fields: Store) -> None:
    pages = [
        log_in(role).get("/admin/history/").content.decode() for role in ("support", "underwriter")
    ]
    assert ["client number" in page for page in pages] == [False, True]


def test_business_key_is_found_only_in_kinds_that_do_not_mask_the_key(
    store_with_marked_fields: Store,
) -> None:
    set_marks("/number", entity=ROOT.name)
    actual = read_data(log_in("support").get("/api/v1/search", {"q": "+79161234567"}))["results"]
    assert [item["foundBy"] for item in actual] == ["clientId"]


def test_filter_by_masked_value_finds_nothing(store_with_marked_fields: Store) -> None:
    client = log_in("support")
    right, wrong = (
        client.get(API, {"path": f"/phones/[number={number}]/type"}).content
        for number in ("+79037654321", "+70000000000")
    )
    assert json.loads(right)["data"]["history"] == json.loads(wrong)["data"]["history"] == []


def test_key_path_from_masked_answer_works_as_path_filter(
    store_with_marked_fields: Store,
) -> None:
    FieldLabel.objects.update_or_create(
        path="/phones/*/pid", defaults={"russian": "x", "sensitive": True}
    )
    labels.forget_catalogue()
    phones = [{"pid": "secret-pid-1", "n": 1}, {"pid": "secret-pid-2", "n": 1}]
    store_with_marked_fields.add("K1", 0, {"phones": phones}, 0, entity=PERSON)
    store_with_marked_fields.add(
        "K1", 1, {"phones": [phones[1], {**phones[0], "n": 2}]}, 1, entity=PERSON
    )
    client = log_in("support")
    history = read_data(client.get("/api/v1/history/participant-role/K1"))["history"]
    (path,) = [item["keyPath"] for item in history[0]["changes"] if item["kind"] == "changed"]
    assert re.fullmatch(r"/phones/\[pid=masked:[0-9a-f]{16}\]/n", path)
    actual = read_data(client.get("/api/v1/history/participant-role/K1", {"path": path}))["history"]
    assert [entry["version"] for entry in actual] == [1]


@pytest.mark.parametrize("call", ["", "/fields"])
def test_path_parameter_below_masked_value_is_refused(
    call: str, store_with_marked_fields: Store
) -> None:
    answer = log_in("support").get(f"{API}{call}", {"path": "/passport/series"})
    assert answer.status_code == 400
    assert json.loads(answer.content)["error"]["parameter"] == "path"
    assert (
        log_in("underwriter").get(f"{API}{call}", {"path": "/passport/series"}).status_code == 200
    )
    whole = log_in("support").get("/api/v1/applications/A1/history", {"path": "/passport/series"})
    assert whole.status_code == 400


def test_superuser_needs_permission_for_sensitive_fields(store_with_marked_fields: Store) -> None:
    User.objects.filter(username="admin").update(is_superuser=True)
    admin = User.objects.get(username="admin")
    address = f"{API}/versions/0"
    assert find_leaks(log_in("admin").get(address).content, SECRETS) == []
    admin.user_permissions.add(Permission.objects.get(codename="view_sensitive"))
    assert find_leaks(log_in("admin").get(address).content, SECRETS)
    admin.user_permissions.clear()
    assert find_leaks(log_in("admin").get(address).content, SECRETS) == []


def test_export_is_masked_unless_reason_is_given(
    store_with_marked_fields: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The export runs in this process, so it sees the uncommitted rows of the test."""
    assert find_leaks(run_export(PERSON, "jsonl"), SECRETS) == []
    clear = run_export(PERSON, "jsonl", "--unmasked", "court order 12\nforged")
    assert find_leaks(clear, SECRETS)
    assert "unmasked export of participant-role" in caplog.text
    assert "\nforged" not in caplog.text


def test_masked_export_is_refused_when_secret_key_is_missing(
    store_with_marked_fields: Store, settings: Any
) -> None:
    production = msgspec.structs.replace(settings.ANNALS, demo=False, secret_key=None)
    settings.ANNALS = production
    with pytest.raises(CommandError, match="ANNALS_SECRET_KEY is missing"):
        run_export(PERSON, "jsonl")
    settings.ANNALS = msgspec.structs.replace(production, secret_key="k" * 50)
    assert find_leaks(run_export(PERSON, "jsonl"), SECRETS) == []
    settings.ANNALS = production
    assert run_export(PERSON, "jsonl", "--unmasked", "court order 12")


@pytest.mark.parametrize("reason", ["", "  "])
def test_unmasked_export_needs_reason(reason: str, store_with_marked_fields: Store) -> None:
    with pytest.raises(CommandError, match="say why"):
        run_export(PERSON, "jsonl", "--unmasked", reason)


def test_document_with_nul_is_masked(store_with_marked_fields: Store) -> None:
    stored = to_store(b'{"fullName":"nul\\u0000canary","role":"\\u0000"}').decode()
    store_with_marked_fields.add("N1", 0, stored, 3, entity=PERSON)
    address = "/api/v1/history/participant-role/N1/versions/0"
    assert b"canary" not in log_in("support").get(address).content + run_export(PERSON)
    assert b"nul\\u0000canary" in log_in("underwriter").get(address).content


def test_whole_document_is_masked_when_every_path_is_marked(
    store_with_marked_fields: Store,
) -> None:
    set_marks("/**")
    support, page = log_in("support"), "/admin/history/participant-role/P1"
    actual = read_data(support.get(API))["history"]
    assert [item["diff"] for item in actual] == [
        [{"op": "replace", "path": "", "value": actual[0]["entity"]}],
        [{"op": "replace", "path": "", "value": actual[1]["entity"]}],
        None,
    ]
    for address in generate_addresses(PERSON, "P1", [0, 1, 2], [""]):
        assert find_leaks(fetch_whole_answer(support, address), SECRETS) == []
    officer, address = log_in("privacy"), f"{page}/versions/0/unmask/"
    form = {"path": "", "reason": "complaint 17"}
    answer = officer.post(address, form)
    assert find_leaks(answer.content, {"4509-112233"}) == ["4509-112233"]


def test_loading_labels_without_marks_keeps_stored_marks(store_with_marked_fields: Store) -> None:
    labels.load_labels(json.dumps([{"path": "/passport", "russian": "Паспорт"}]).encode())
    labels.load_labels(labels.SHIPPED_FILE.read_bytes())
    assert FieldLabel.objects.get(entity="", path="/passport").sensitive
    labels.load_labels(
        json.dumps([{"path": "/passport", "russian": "Паспорт", "sensitive": False}]).encode()
    )
    assert not FieldLabel.objects.get(entity="", path="/passport").sensitive


def test_commands_read_masked_snapshots_unless_they_request_unmasked_values(
    store_with_marked_fields: Store,
) -> None:
    from history import timeline

    assert find_leaks(timeline.fetch_newest_version(HOST, PERSON, "P1").snapshot, SECRETS) == []
    in_clear = HOST.show_masked_values()
    assert json.loads(timeline.fetch_newest_version(in_clear, PERSON, "P1").snapshot) == THIRD
    assert find_leaks(timeline.fetch_newest_version(HOST, PERSON, "P1").snapshot, SECRETS) == []


def test_labels_file_of_demo_masks_sensitive_fields(
    store_with_marked_fields: Store,
) -> None:
    set_marks()
    example = Path(__file__).parents[2] / "annals/demo/sensitive-fields.json"
    labels.load_labels(example.read_bytes())
    document = {**FIRST, "birthDate": "1980-01-02", "email": None, "registrationAddress": "x"}
    store_with_marked_fields.add("E1", 0, {**document, "owner": {"phone": "1"}}, 3, entity=PERSON)
    address = "/api/v1/history/participant-role/E1/versions/0"
    actual = read_data(log_in("support").get(address))["entity"]
    names = ("passport", "income", "birthDate", "email", "registrationAddress")
    masked = [*(actual[name] for name in names), actual["phones"][0]["number"]]
    assert all(map(masking.is_token, [*masked, actual["owner"]["phone"]]))
    assert (actual["role"], actual["phones"][0]["type"]) == ("BORROWER", "MOBILE")


def test_page_title_is_not_made_from_masked_value(store_with_marked_fields: Store) -> None:
    page = log_in("support").get(f"{PAGE}/").content.decode()
    assert re.search(r"<h1>P1</h1>", page)
    assert "MOBILE (" in page
    assert re.search(r"•••• [0-9a-f]{6} \(", page) is None


def test_etags_of_masked_and_unmasked_answers_differ(
    store_with_marked_fields: Store,
) -> None:
    """A viewer of masked values must not learn from a 304 whether the unmasked values changed."""
    address = f"/api/v1/history/{PERSON.name}/P1/versions/1"
    masked, whole = log_in("support"), log_in("underwriter")
    tags = [item.get(address).headers["ETag"] for item in (masked, whole)]
    assert tags[0] != tags[1]
    for reader, tag in ((masked, tags[1]), (whole, tags[0])):
        assert reader.get(address, headers={"If-None-Match": tag}).status_code == 200
    labels.forget_catalogue()
    FieldLabel.objects.filter(path="/income").update(sensitive=False)
    assert masked.get(address, headers={"If-None-Match": tags[0]}).status_code == 200


def test_version_removed_from_store_is_answered_with_404_instead_of_304(
    store_with_marked_fields: Store,
) -> None:
    reader = log_in("support")
    address = f"/api/v1/history/{PERSON.name}/P1/versions/1"
    tag = reader.get(address).headers["ETag"]
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {PERSON.table} WHERE id = 'P1'")
    removed = reader.get(address, headers={"If-None-Match": tag})
    assert (removed.status_code, removed.headers["Cache-Control"]) == (404, "no-store")


# Unmasking one value with a reason.

UNMASK = f"{PAGE}/versions/0/unmask/"
ASK = f"{UNMASK}?path=/passport"


def test_privacy_officer_unmasks_value_with_reason(
    store_with_marked_fields: Store, caplog: pytest.LogCaptureFixture
) -> None:
    officer = log_in("privacy")
    page = officer.get(f"{PAGE}/versions/0/").content.decode()
    assert f"{UNMASK}?path=%2Fpassport" in page
    requested = officer.get(UNMASK, {"path": "/passport"})
    assert find_leaks(requested.content, SECRETS) == []
    assert "3 of them letters or digits" in requested.content.decode()
    assert "novalidate" in requested.content.decode()
    form = {"path": "/passport", "reason": "complaint 17\nforged"}
    with caplog.at_level(logging.WARNING, logger="history.policy.masking"):
        answer = officer.post(UNMASK, form)
    assert find_leaks(answer.content, SECRETS) == ["4509-112233"]
    assert answer.headers["Cache-Control"] == "no-store"
    (line,) = [
        record.getMessage() for record in caplog.records if "unmasked" in record.getMessage()
    ]
    assert "privacy" in line
    assert "/passport" in line
    assert "complaint 17\\nforged" in line
    assert find_leaks(officer.get(f"{PAGE}/").content, SECRETS) == []
    assert find_leaks(officer.get(UNMASK, {"path": "/passport"}).content, SECRETS) == []


INVISIBLE = ["\u200b", "\u2800", "\u3164", "\u00ad", "\u202e", "."]


@pytest.mark.parametrize(
    "reason", ["", "     ", "abcd", "x" * 501, *(item * 5 for item in INVISIBLE)]
)
def test_unmasking_is_refused_when_reason_is_invisible_or_of_wrong_length(
    reason: str, store_with_marked_fields: Store
) -> None:
    officer = log_in("privacy")
    form = {"path": "/passport", "reason": reason}
    answer = officer.post(UNMASK, form)
    assert answer.status_code == 200
    assert b'class="errorlist"' in answer.content
    assert find_leaks(answer.content, SECRETS) == []


def test_journal_entry_of_unmasking_has_path_and_reason(store_with_marked_fields: Store) -> None:
    officer = log_in("privacy")
    officer.get(ASK)
    for _ in range(2):  # the form is sent twice, as by a reload or a double click
        answer = officer.post(UNMASK, {"path": "/passport", "reason": "complaint 17"})
        assert find_leaks(answer.content, SECRETS) == ["4509-112233"]
    officer.post(UNMASK, {"path": "/passport", "reason": ""})
    log_in("support").post(UNMASK, {"path": "/passport", "reason": "complaint 17"})
    actual = JournalEntry.objects.order_by("at").values_list("action", "outcome", "path", "reason")
    assert list(actual) == [
        ("version", "shown", "", ""),
        *[("unmask", "shown", "/passport", "complaint 17")] * 2,
        ("version", "shown", "", ""),  # the page that asks for the reason
        ("unmask", "refused", "", ""),
    ]


def test_journal_entry_of_unmasking_has_path_from_form_and_not_from_query_string(
    store_with_marked_fields: Store,
) -> None:
    form = {"path": "/passport", "reason": "complaint 17"}
    for query in ("a" * 1100, "%20%2FfullName", "path=/fullName"):
        officer = log_in("privacy")
        answer = officer.post(f"{UNMASK}?{query}", form)
        assert find_leaks(answer.content, SECRETS) == ["4509-112233"]
    actual = JournalEntry.objects.filter(action="unmask").values_list("path", flat=True)
    assert list(actual) == ["/passport"] * 3


def test_unmasking_distinguishes_two_versions_with_the_same_number(
    store_with_marked_fields: Store,
) -> None:
    for number in (1, 2):
        store_with_marked_fields.add(
            "P9", 7, {"passport": f"4509-00000{number}"}, number, entity=PERSON
        )
    officer, form = log_in("privacy"), {"path": "/passport", "reason": "complaint 17"}
    for number in (1, 2):
        moment_text = quote(minute(number).isoformat())
        address = f"/admin/history/{PERSON.name}/P9/versions/7/unmask/?at={moment_text}"
        assert f"4509-00000{number}" in officer.post(address, form).content.decode()
    unmasked = JournalEntry.objects.filter(action="unmask").order_by("at")
    actual = unmasked.values_list("path", "moment")
    assert list(actual) == [("/passport", minute(number).isoformat()) for number in (1, 2)]


@pytest.mark.parametrize("failure", ["refuse", "answer"])
def test_unmasking_is_refused_when_journal_fails(
    failure: str, store_with_marked_fields: Store, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, journal_failure=failure)
    officer = log_in("privacy")
    form = {"path": "/passport", "reason": "complaint 17"}
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {JournalEntry._meta.db_table} RENAME TO gone")
    answer = officer.post(UNMASK, form)
    assert answer.status_code == 503
    assert find_leaks(answer.content, SECRETS) == []


@pytest.mark.parametrize("path", ["/role", "/none", "", "/passport/series", "/phones/0"])
def test_only_masked_values_can_be_unmasked(path: str, store_with_marked_fields: Store) -> None:
    form = {"path": path, "reason": "complaint 17"}
    assert log_in("privacy").post(UNMASK, form).status_code == 404
    assert log_in("privacy").get(UNMASK, form).status_code == 404


@pytest.mark.parametrize("role", ["support", "auditor", "ops", "admin", "underwriter"])
def test_unmask_page_is_refused_to_role_without_permission_to_unmask(
    role: str, store_with_marked_fields: Store
) -> None:
    client = log_in(role)
    assert client.get(UNMASK, {"path": "/passport"}).status_code == 403
    answer = client.post(UNMASK, {"path": "/passport", "reason": "complaint 17"})
    assert answer.status_code == 403
    assert find_leaks(answer.content, SECRETS) == []
    if role != "ops":
        assert "/unmask/" not in client.get(f"{PAGE}/versions/0/").content.decode()
