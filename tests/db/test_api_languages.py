"""Every error of the API in the language of the request.

An English text has no Russian words, and a Russian one no English words except names. Status, code
and parameter are the same in both languages.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.signals import request_finished
from django.db import OperationalError, close_old_connections
from django.test import Client

from annals.access.journal.write import JournalError
from annals.access.oidc.discovery import get_discoveries
from annals.access.oidc.providers import Provider
from annals.web.middleware import journal as journal_middleware
from history import timeline
from history.api.errors import ERROR_KINDS
from history.common.deadline import TooLongError
from history.common.worker_shares import BusyError
from history.kinds.entities import BY_NAME
from history.policy.need_to_know import NeedToKnowError
from history.store.blocks.codec import DamagedBlockError
from tests.access.issuer import CLIENT, LocalIssuer
from tests.access.test_masking_properties import set_marks
from tests.db.store import T0, Store

BASE = "/api/v1/history/product-instance/A1"
WHOLE = "/api/v1/applications/A1"
# Names of the API, which are the same in every language.
NAMES = re.compile(
    r"API|UTC|base64|GET|HEAD|OPTIONS|Retry-After|/api/docs/|JWT|NUL|UTF|IANA|Europe/Moscow|true|false"
    r"|ISO 8601|2025-07-03T11|updatedAt|pageSize|\bfrom\b|version|desc|asc|CREATE|UPDATE"
    r"|DELETE|entity|diff|changes|requestId|id|A1\w*|\[field=value\]|'.*'|\bto\b|product-instance|"
    + "|".join(BY_NAME)
)
BAD = [
    "nonsense=1",
    "tz=x&tz=y",
    "tz=",
    f"author={'a' * 65}",
    "author=%00",
    "author=%FF",
    "tz=x",
    "pageSize=0",
    "pageSize=501",
    "pageSize=x",
    "sort=x",
    "order=x",
    "type=x",
    "include=x",
    "from=x",
    "to=x",
    "from=0001-01-01T00:00&tz=Europe/Moscow",
    "from=2026-02-01&to=2026-01-01",
    "from=0001-01-01T00:00:00%2B14:00",
    "to=2026-13-01",
    "clientId=%FF",
    "pagesize=5",
    "pageSize=ten",
    "pageToken=",
    *(f"tz={zone}" for zone in ("Factory", "../x", "posix/UTC")),
    "path=x",
    "path=/~x",
    "path=/[x",
    "path=/secret/x",
    "pageToken=x",
    "archive=x",
    "archive=true",
]
REFUSED = [
    *(f"{BASE}?{query}" for query in BAD),
    f"{BASE}/compare",
    f"{BASE}/compare?from=x&to=1",
    f"{BASE}/compare?from=0&to=9",
    f"{BASE}/at",
    f"{BASE}/at?time=x",
    f"{BASE}/at?time=2000-01-01",
    f"{BASE}/fields",
    f"{BASE}/fields?path=/*",
    f"{BASE}/fields?path=x",
    f"{BASE}/versions/x",
    f"{BASE}/versions/9",
    f"{BASE}/versions/1",
    f"{BASE}%00",
    f"{BASE}?to=2000-01-01",
    f"{BASE}{'a' * 40}/blame",
    *(f"{BASE}none{call}" for call in ("", "/blame", "/fields?path=/rate", "/versions/1")),
    f"{WHOLE}/at",
    f"{WHOLE}/at?time=2000-01-01",
    f"{WHOLE}/history?sort=version",
    f"{WHOLE}/history?pageToken=v1:x",
    f"{WHOLE}none/history",
    f"{WHOLE}none/at?time=2026-01-01",
    "/api/v1/history/x/A1",
    "/api/v1/nothing",
    "/api",
    f"/api/v1/search?q={'a' * 301}",
    "/api/v1/search",
    f"{BASE}?{'a=1&' * 1001}",
]


@pytest.fixture
def auditor(client: Client, store: Store) -> Iterator[Client]:
    store.add("A1", 0, {"rate": "1", "secret": {"x": 1}}, 0)
    store.add("A1", 2, {"rate": "2", "secret": {"x": 1}}, 1)
    set_marks("/secret")
    client.force_login(User.objects.get(username="auditor"))
    client.raise_request_exception = False
    yield client
    set_marks()


def read_error_in_both_languages(
    ask: Callable[[dict[str, str]], Any], code: str | None = None
) -> dict[str, Any]:
    """Check that an error says the same in English and in Russian, and return the English one."""
    outcomes = {}
    for language in ("en", "ru"):
        answer = ask({"Accept-Language": language})
        error = json.loads(answer.content)["error"]
        assert answer.headers["Content-Language"] == language
        assert {"Accept-Language", "Cookie"} <= set(answer.headers["Vary"].split(", "))
        outcomes[language] = (answer.status_code, error["code"], error.get("parameter"))
        text = error["message"].removeprefix(f"{error.get('parameter')}: ")
        if language == "en":
            assert text.isascii(), text
            english_error = error
        else:
            assert re.search("[а-яё]{2}", text), text
            assert not re.search("[A-Za-z]", NAMES.sub("", text)), text
    assert outcomes["en"] == outcomes["ru"]
    assert english_error["code"] == (code or english_error["code"])
    return dict(english_error)


@pytest.mark.parametrize("address", REFUSED, ids=lambda address: address[:60])
def test_wrong_request_is_explained_in_both_languages(auditor: Client, address: str) -> None:
    english_error = read_error_in_both_languages(
        lambda headers: auditor.get(address, headers=headers)
    )
    if (query := address.removeprefix(f"{BASE}?")) in BAD:
        assert (english_error["code"], english_error["parameter"]) == (
            "bad_parameter",
            query.partition("=")[0],
        )
        assert english_error["parameter"] in english_error["message"]


def test_every_error_code_is_translated(
    auditor: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The codes include those of errors that are raised outside of views."""
    anonymous = Client()
    basic = {"Authorization": "Basic x"}
    seen = {json.loads(auditor.get(item).content)["error"]["code"] for item in REFUSED}
    ops = Client()
    ops.force_login(User.objects.get(username="ops"))
    for code, ask in {
        "not_authenticated": lambda h: anonymous.get(BASE, headers=h),
        "no_permission": lambda h: ops.get(BASE, headers=h),
        "method_not_allowed": lambda h: auditor.post(BASE, headers=h),
        "bad_request": lambda h: auditor.get(BASE, headers={**h, "Host": "evil.example"}),
    }.items():
        read_error_in_both_languages(ask, code)
        seen.add(code)
    read_error_in_both_languages(
        lambda h: anonymous.get(BASE, headers={**h, **basic}), "not_authenticated"
    )

    def check_error_text(error: Callable[[], Exception], code: str) -> None:
        def fail(*_: object) -> None:
            raise error()

        with monkeypatch.context() as patch:
            patch.setattr(timeline, "fetch_page", fail)
            read_error_in_both_languages(lambda h: auditor.get(BASE, headers=h), code)
        seen.add(code)

    check_error_text(RuntimeError, "internal_error")
    check_error_text(OperationalError, "unavailable")
    check_error_text(timeline.ArchiveUnavailableError, "archive_unavailable")
    check_error_text(NeedToKnowError, "need_to_know")
    check_error_text(TooLongError, "too_long")
    check_error_text(BusyError, "busy")
    damaged = DamagedBlockError()
    damaged.day = T0.date()
    check_error_text(lambda: damaged, "damaged")

    def raise_journal_error(*_: object) -> None:
        # The middleware closes the withheld answer within the request, and this would close the
        # test's connection. Django's test client prevents that only at the end of a request.
        request_finished.disconnect(close_old_connections)
        raise JournalError("down")

    with monkeypatch.context() as patch:
        patch.setattr(journal_middleware, "write_entries", raise_journal_error)
        read_error_in_both_languages(lambda h: auditor.get(BASE, headers=h), "journal_unavailable")
    seen |= {"journal_unavailable", "internal_error"}
    assert seen == {code for _, _, code in ERROR_KINDS} | {"internal_error"}


def test_unknown_host_is_refused_in_language_of_request_when_https_is_required(
    auditor: Client, settings: Any
) -> None:
    """The host is refused before the middleware that activates the language."""
    settings.SECURE_SSL_REDIRECT = True
    read_error_in_both_languages(
        lambda h: auditor.get(BASE, headers={**h, "Host": "evil.example"}), "bad_request"
    )


def test_wrong_token_is_refused_in_language_of_request(auditor: Client, settings: Any) -> None:
    """The WWW-Authenticate header stays in English: RFC 6750 requires ASCII."""
    with LocalIssuer() as issuer:
        bank = Provider(name="bank", title="Bank", issuer=issuer.url, client_id=CLIENT)
        settings.OIDC_PROVIDERS = (bank,)
        get_discoveries.cache_clear()
        for token in (
            "x",
            issuer.make_token(exp=1),
            issuer.make_token(aud="x"),
            issuer.make_token(typ="ID"),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            read_error_in_both_languages(
                lambda h, extra=headers: Client().get(BASE, headers={**h, **extra})
            )
            answer = Client().get(BASE, headers={**headers, "Accept-Language": "ru"})
            assert answer.headers["WWW-Authenticate"].isascii()
        issuer.down = True
        get_discoveries.cache_clear()
        headers = {"Authorization": f"Bearer {issuer.make_token()}"}
        english_error = read_error_in_both_languages(
            lambda h: Client().get(BASE, headers={**h, **headers}), "unavailable"
        )
        assert "issuer" in english_error["message"]
    get_discoveries.cache_clear()


@pytest.mark.parametrize(
    "accept, language",
    [("", "ru"), ("en-GB,ru;q=0.5", "en"), ("de,ru;q=0.9,en;q=0.8", "ru"), ("de", "ru")],
)
def test_language_of_answer_follows_accept_language_header(
    auditor: Client, accept: str, language: str, settings: Any
) -> None:
    settings.LANGUAGE_CODE = "ru"  # as it is installed
    headers = {"Accept-Language": accept} if accept else {}
    for address in (BASE, f"{BASE}?tz=x", "/api/nothing"):
        assert auditor.get(address, headers=headers).headers["Content-Language"] == language


def test_openapi_document_is_in_english(client: Client, db: None) -> None:
    texts = set()
    for language in ("ru", "en"):
        answer = client.get("/api/schema/", headers={"Accept-Language": language})
        assert answer.headers["Content-Language"] == "en"
        texts.add(answer.content)
    assert len(texts) == 1
