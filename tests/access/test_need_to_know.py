"""Need-to-know: no answer has anything of an application that the rule hides from the viewer.

The same holds for its children. A rule that fails hides the application.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.test import Client

from annals.access.models import JournalEntry
from history import timeline
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ROOT
from history.models import SearchKey
from history.policy import need_to_know
from history.policy.masking.viewer import Caller
from history.policy.need_to_know import Application
from tests.access.issuer import LocalIssuer
from tests.access.test_hostile import send_with_token
from tests.access.test_masking_properties import (
    fetch_whole_answer,
    find_leaks,
    generate_addresses,
    log_in,
    set_marks,
)
from tests.db.store import HOST, T0, Store

MODULE = "tests.access.test_need_to_know"
PERSON = BY_NAME["participant-role"]
SECRETS = {"VIP-OWNER", "VIP-CHILD", "77-0001"}
ids: list[str] = []


def not_vip(user: Caller, application: Application) -> bool:
    """Return whether `user` may see an application: with the field `vip` only `underwriter` may.

    docs/access.md has a similar rule as its example.
    """
    document: Any = application.document
    return "vip" not in document or user.get_username() == "underwriter"  # type: ignore[attr-defined]


def raises(user: Caller, application: Application) -> bool:
    raise RuntimeError(str(application.document))


def nearly_true(user: Caller, application: Application) -> Any:
    return "no"


def count_calls(user: Caller, application: Application) -> bool:
    ids.append(application.id)
    return True


async def async_rule(user: Caller, application: Application) -> bool:
    return True


def rule_of_three(user: Caller, application: Application, more: str) -> bool:
    return True


NUMBER = 5


@pytest.fixture
def store_with_hidden_application(store: Store) -> Store:
    """Store two applications: V1, which the rule `not_vip` hides, and A1, which it does not hide.

    The two applications have one contract number. V1 has the child P9, and A1 has the child P1. The
    two children have one client number.
    """
    for id, extra in (("V1", {"vip": True, "name": "VIP-OWNER"}), ("A1", {"name": "Ипотека"})):
        store.add(id, 0, {"number": "77-0001", **extra}, 0)
        store.add(id, 1, {"number": "77-0001", "rate": "2", **extra}, 1)
    store.add("P9", 0, {"fullName": "VIP-CHILD"}, 2, entity=PERSON, application="V1")
    store.add("P9", 1, {"fullName": "VIP-CHILD", "role": "X"}, 3, entity=PERSON, application="V1")
    store.add("P1", 0, {"fullName": "Иванов"}, 2, entity=PERSON, application="A1")
    for entity, id, key in (
        (ROOT, "V1", "number"),
        (ROOT, "A1", "number"),
        (PERSON, "P9", "clientId"),
        (PERSON, "P1", "clientId"),
    ):
        value = "77-0001" if key == "number" else "CLIENT"
        SearchKey.objects.create(value=value, name=key, entity=entity.name, id=id, day=T0.date())
    return store


@pytest.fixture
def set_rule(settings: Any) -> Callable[[str], None]:
    def set_setting(name: str) -> None:
        settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=f"{MODULE}.{name}")

    return set_setting


def generate_questions() -> Iterator[str]:
    yield from generate_addresses(ROOT, "V1", [0, 1], ["/number", "/name"])
    yield from generate_addresses(PERSON, "P9", [0, 1], ["/fullName", "/role"])
    for page in ("/api/v1/search", "/admin/history/"):
        for text in ("CLIENT", "P9", "V1", "V1,P9"):
            yield f"{page}?q={text}"
    yield "/api/v1/history/product-instance/V1?author=nobody.there"
    yield "/api/v1/history/product-instance/V1?to=2001-01-01"
    yield "/api/v1/applications/V1/history?author=nobody.there"


@pytest.mark.parametrize("role", ["support", "privacy", "admin"])
def test_answers_contain_nothing_of_hidden_application(
    role: str, store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_rule("not_vip")
    client = log_in(role)
    for address in generate_questions():
        content = fetch_whole_answer(client, address)
        assert not find_leaks(content, SECRETS - {"77-0001"}), address
        bad = address.endswith("path=wrong")  # 400: the parameter is wrong, nothing is searched
        if not bad and "search?" not in address and "?q=" not in address and address != "/admin/":
            assert content.startswith(b"403"), address
            head = client.head(address)
            assert (head.status_code, head.content) == (403, b""), address
    # A permitted viewer gets the secrets from these addresses, so the test can find leaks.
    reader = log_in("underwriter")
    assert find_leaks(fetch_whole_answer(reader, "/api/v1/history/product-instance/V1"), SECRETS)
    assert find_leaks(fetch_whole_answer(reader, "/api/v1/history/participant-role/P9"), SECRETS)
    assert client.get("/api/v1/history/product-instance/A1").status_code == 200
    assert client.get("/admin/applications/A1/").status_code == 200


def test_search_page_is_filled_up_when_hidden_results_are_left_out(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    for number in range(NUMBER):
        id = f"N{number}"
        store_with_hidden_application.add(
            id, 0, {"number": "77-0001"} | ({"vip": 1} if number % 2 else {}), 10 + number
        )
        SearchKey.objects.create(
            value="77-0001", name="number", entity=ROOT.name, id=id, day=T0.date()
        )
    set_rule("not_vip")

    def search_ids(client: Client, **more: Any) -> tuple[list[str], str | None]:
        answer = client.get("/api/v1/search", {"q": "77-0001", **more})
        data = json.loads(answer.content)["data"]
        return [item["id"] for item in data["results"]], data.get("nextPageToken")

    support = log_in("support")
    first, token = search_ids(support, pageSize=2)
    second, end = search_ids(support, pageSize=2, pageToken=token)
    assert (first, second, end) == (["N4", "N2"], ["N0", "A1"], None)
    assert len(search_ids(log_in("underwriter"))[0]) == 7
    by_client = json.loads(support.get("/api/v1/search?q=CLIENT").content)["data"]["results"]
    assert [(entry["id"], entry["foundIn"]) for entry in by_client] == [
        ("A1", [{"kind": PERSON.name, "id": "P1"}])
    ]


def test_child_is_refused_when_one_of_its_versions_belongs_to_hidden_application(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    store_with_hidden_application.add(
        "P9", 2, {"fullName": "VIP-CHILD"}, 4, entity=PERSON, application="A1"
    )
    set_rule("not_vip")
    support = log_in("support")
    assert support.get("/api/v1/history/participant-role/P9").status_code == 403
    assert support.get("/api/v1/history/participant-role/P9/versions/2").status_code == 403
    assert json.loads(support.get("/api/v1/search?q=P9").content)["data"]["results"] == []


@pytest.mark.parametrize("more", ["", "?author=nobody", "/at?time=2001-01-01T00:00:00Z"])
def test_refused_access_to_application_is_noted_in_journal(
    store_with_hidden_application: Store, set_rule: Any, more: str
) -> None:
    set_rule("not_vip")
    support = log_in("support")
    address = f"/api/v1/history/participant-role/P9{more}"
    support.get(address, headers={"X-Annals-Reason": "curious"})
    (row,) = JournalEntry.objects.all()
    assert (row.outcome, row.status, row.login) == ("refused", 403, "support")
    assert (row.application, row.entity_id) == ("V1", "P9")
    assert row.reason == "need-to-know: curious"
    page = log_in("privacy").get("/admin/journal/?outcome=refused&application=V1")
    assert b"need-to-know: curious" in page.content


def test_search_for_hidden_application_is_in_journal(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_rule("not_vip")
    log_in("support").get("/api/v1/search?q=77-0001")
    shown, hidden = JournalEntry.objects.order_by("outcome").reverse()
    assert (shown.application, shown.outcome, shown.reason) == ("A1", "shown", "")
    assert (hidden.application, hidden.outcome) == ("V1", "refused")
    assert (hidden.action, hidden.reason) == ("search", "need-to-know: left out of the list")


def test_start_page_leaves_out_hidden_applications(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    store_with_hidden_application.add(
        "P7", 0, {"role": "X"}, 2, entity=PERSON, application="NO-ROOT"
    )
    support = log_in("support")
    session = support.session
    session["opened"] = [
        *((ROOT.name, id) for id in ("NO-ROOT", "A1", "V1")),
        (PERSON.name, "P9"),
    ]
    session.save()
    set_rule("not_vip")  # fails for NO-ROOT, which has no document
    page = support.get("/admin/").content
    assert b"/A1/" in page
    assert not find_leaks(page, {"NO-ROOT", "/V1", ">V1<", "/P9", ">P9<", "VIP-OWNER", "VIP-CHILD"})
    actual = JournalEntry.objects.values_list("action", "application", "outcome")
    assert sorted(actual) == [
        ("search", "A1", "shown"),
        ("search", "NO-ROOT", "refused"),
        ("search", "V1", "refused"),
    ]


def test_list_of_recently_opened_documents_leaves_out_hidden_documents(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    store_with_hidden_application.add("P7", 0, {"role": "X"}, 2, entity=PERSON, application="A1")
    support = log_in("support")
    session = support.session
    session["opened"] = [
        *((ROOT.name, f"NONE-{number}") for number in range(6)),
        (ROOT.name, "V1"),
        (PERSON.name, "P9"),
        (PERSON.name, "P7"),
        (ROOT.name, "A1"),
    ]
    session.save()
    set_rule("not_vip")
    page = support.get("/admin/")
    assert [second[1] for second in page.context["others"]] == ["P7", "A1"]
    assert not find_leaks(page.content, {"/V1", ">V1<", "/P9", ">P9<", "VIP-OWNER", "VIP-CHILD"})


def test_request_for_hidden_application_gets_error_code_need_to_know(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_rule("not_vip")
    support = log_in("support")
    answer = support.get("/api/v1/history/product-instance/V1")
    assert json.loads(answer.content)["error"]["code"] == "need_to_know"
    page = support.get("/admin/history/product-instance/V1/")
    assert "This application is open only to those who work on it" in page.content.decode()
    missing = support.get("/api/v1/history/product-instance/NONE")
    assert missing.status_code == 404


def test_need_to_know_rule_gets_unmasked_document_and_viewer_gets_masked_one(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_marks("/vip", "/name")
    set_rule("not_vip")
    assert log_in("support").get("/api/v1/history/product-instance/V1").status_code == 403
    content = fetch_whole_answer(log_in("support"), "/api/v1/history/product-instance/A1")
    assert "Ипотека".encode() not in content


def test_unmasking_obeys_need_to_know_rule(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_marks("/name")
    set_rule("not_vip")
    address = "/admin/history/product-instance/{}/versions/1/unmask/"
    officer, form = log_in("privacy"), {"reason": "request 7", "path": "/name"}
    assert officer.post(address.format("V1"), form).status_code == 403
    assert officer.post(address.format("A1"), form).status_code == 200


def test_need_to_know_rule_applies_to_programs(
    client: Client, issuer: LocalIssuer, store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_rule("not_vip")
    token = issuer.make_token()
    for id, status in (("V1", 403), ("A1", 200)):
        assert (
            send_with_token(client, token, f"/api/v1/history/product-instance/{id}").status_code
            == status
        )


@pytest.mark.parametrize("name", ["raises", "nearly_true"])
def test_application_stays_hidden_when_need_to_know_rule_fails(
    name: str, store_with_hidden_application: Store, set_rule: Any, caplog: pytest.LogCaptureFixture
) -> None:
    set_rule(name)
    before = need_to_know._refused_by_failure._value.get()
    with caplog.at_level(logging.ERROR):
        answers = [log_in("support").get("/api/v1/applications/V1/history") for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert json.loads(answer.content)["error"]["code"] == "unavailable"
        assert "cannot be determined" in json.loads(answer.content)["error"]["message"]
    assert need_to_know._refused_by_failure._value.get() == before + 2
    assert "application V1 stays closed" in caplog.text
    assert "VIP-OWNER" not in caplog.text


def test_failed_need_to_know_rule_is_noted_as_failure_in_journal(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_rule("raises")
    support = log_in("support")
    page = support.get("/admin/history/product-instance/V1/")
    assert (page.status_code, page.headers["Retry-After"]) == (503, "5")
    assert "cannot be determined now" in page.content.decode()
    support.get("/api/v1/history/participant-role/P9")
    for row in JournalEntry.objects.all():
        assert (row.outcome, row.status) == ("failed", 503)
        assert row.reason == "need-to-know: the rule failed"


def test_child_is_refused_when_one_of_its_applications_is_refused(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    """The child is refused even if the rule raises an error for its second application."""
    store_with_hidden_application.add(
        "P9", 2, {"fullName": "VIP-CHILD"}, 4, entity=PERSON, application="NO-ROOT"
    )
    set_rule("not_vip")  # fails for NO-ROOT, which has no document
    assert log_in("support").get("/api/v1/history/participant-role/P9").status_code == 403


def test_need_to_know_rule_is_called_once_per_request(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_rule("count_calls")
    ids.clear()
    assert log_in("support").get("/admin/applications/A1/").status_code == 200
    assert ids == ["A1"]


def test_request_gets_503_when_need_to_know_rule_fails_because_snapshot_is_missing(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    store_with_hidden_application.add(
        "P7", 0, {"role": "X"}, 2, entity=PERSON, application="NO-ROOT"
    )
    store_with_hidden_application.add("D1", 3, "null", 2, type=ChangeType.DELETE)
    set_rule("not_vip")  # fails if the document is None
    support = log_in("support")
    for address in ("history/participant-role/P7", "history/product-instance/D1"):
        assert support.get(f"/api/v1/{address}").status_code == 503


def test_commands_are_exempt_from_need_to_know_rule(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    set_rule("raises")
    assert timeline.fetch_newest_version(HOST, ROOT, "V1").version == 1


@pytest.mark.parametrize(
    "path, reason",
    [
        ("no.such.module", "cannot be imported"),
        (f"{MODULE}.no_such_name", "cannot be imported"),
        (f"{MODULE}.NUMBER", "is not a function"),
        (f"{MODULE}.async_rule", "must be a plain function"),
        (f"{MODULE}.rule_of_three", "must take two arguments"),
    ],
)
def test_unusable_need_to_know_rule_is_named_in_the_error(
    path: str, reason: str, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=path)
    with pytest.raises(need_to_know.UnusableRuleError, match=reason) as raised:
        need_to_know.load_rule()
    assert path in str(raised.value)


def test_process_does_not_start_when_need_to_know_rule_cannot_be_used() -> None:
    result = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"ANNALS_NEED_TO_KNOW": "no.such.rule"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("annals: ANNALS_NEED_TO_KNOW is wrong: no.such.rule cannot")
    assert "Traceback" not in result.stderr
