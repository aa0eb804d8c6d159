"""Whole screens in Russian, the default language: no English text is left on them.

All other tests use English. tests/unit/test_translations.py compares the catalogues with the code.
"""

import html
import re
from datetime import timedelta
from functools import cache

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from annals.configuration import env
from history.common import clock
from history.models import FieldLabel, Person
from history.store.catalogue import labels
from ingest.models import JobRun
from tests.db.ingested import Ingested
from tests.db.screens import A1, WHOLE
from tests.db.store import Store
from tests.messages import make_value
from tests.unit.test_translations import FILES, iterate_entries

CLERKS_SCREENS = [
    A1,
    f"{A1}?type=FOO&path=/~9&from=2026-13-01&author={'x' * 65}&page=x",
    f"{A1}?path=/rate&to=2000-01-01",
    WHOLE,
    "/admin/history/",
    "/admin/history/?q=A1",
    "/admin/history/?q=A1,UNSEEN",
    "/admin/history/product-instance/UNSEEN/",
    f"{A1}compare/?from=0&to=2",
    f"{A1}compare/?from=0&to=9",
    f"{A1}versions/2/",
    f"{A1}versions/1/",
    f"{A1}state/",
    "/admin/at/A1/",
]
OPERATORS_SCREENS = [
    "/admin/quarantine/",
    "/admin/ingest/quarantined/",
    "/admin/operations/",
    "/admin/completeness/",
    "/admin/days/",
]
NOT_READ = re.compile(r"(?s)<(script|style|code|pre|kbd)\b.*?</\1>")
DJANGOS_SEARCH_ICON = 'alt="Search"'  # Django does not translate it
READ_ATTRIBUTES = re.compile(r'\b(?:title|alt|placeholder|aria-label)="([^"]*)"')
# A Latin word that is not part of an address, of a name in code or of a login.
WORD = re.compile(r"(?<![\w./=?&-])[A-Za-z][a-z]{2,}(?![\w/=-]|\.\w)")
# The text of the button that changes the language, in both languages.
ENGLISH_ON_RUSSIAN_SCREENS = {"English"}


def read_visible_text(page: str) -> str:
    """Return the text of a page, and of the attributes that a person sees or a screen reader
    reads."""
    page = NOT_READ.sub(" ", page).replace(DJANGOS_SEARCH_ICON, "")
    texts = [re.sub(r"<[^>]*>", " ", page), *READ_ATTRIBUTES.findall(page)]
    return html.unescape(" ".join(texts))


@cache
def collect_english_words() -> frozenset[str]:
    """Return the words that only English texts have: not "Kafka", which Russian texts have too."""
    english: set[str] = set()
    russian: set[str] = set()
    for path in FILES:
        for identity, translations in iterate_entries(path):
            english.update(WORD.findall(identity.rpartition("\x04")[2]))
            for text in translations:
                russian.update(WORD.findall(text))
    return frozenset(english - russian - ENGLISH_ON_RUSSIAN_SCREENS)


@pytest.fixture
def russian(client: Client) -> Client:
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "ru"
    return client


@pytest.fixture
def application_with_gap(store: Store) -> Store:
    """Store an application and its child.

    The application has version 0, by a known author, and version 2, by an unknown author.
    """
    Person.objects.create(login="m.ivanov", full_name="Иванов Михаил", kind="person")
    Person.objects.create(login="top-crm", full_name="Фронт-офис", kind="service")
    FieldLabel.objects.update_or_create(
        entity="product-instance", path="/rate", defaults={"russian": "Ставка", "kind": "percent"}
    )
    labels.forget_catalogue()
    store.add("A1", 0, {"name": "Ипотека", "rate": "18.4", "modifiedBy": "1"}, 0)
    store.add("A1", 2, {"name": "Ипотека", "rate": "17.9"}, 1, author="x.17")
    store.add("R1", 0, {"fullName": "Рожков Олег"}, 2, entity="participant-role")
    return store


def find_english_words(client: Client, address: str) -> set[str]:
    answer = client.get(address, follow=True)
    assert answer.headers["Content-Language"] == "ru", address
    text = read_visible_text(answer.content.decode())
    assert re.search("[а-яё]{3}", text), address
    return set(WORD.findall(text)) & collect_english_words()


def test_default_language_is_russian() -> None:
    assert env.read_settings({}).language == "ru"


@pytest.mark.parametrize("address", CLERKS_SCREENS)
def test_russian_screen_of_clerk_has_no_english_word(
    address: str, application_with_gap: Store, russian: Client
) -> None:
    russian.force_login(User.objects.get(username="support"))
    assert find_english_words(russian, address) == set()


@pytest.mark.parametrize("address", OPERATORS_SCREENS)
def test_russian_screen_of_operator_has_no_english_word(
    address: str, ingested: Ingested, russian: Client
) -> None:
    ingested.write(make_value(id="a", version="x"), make_value(id="b", updatedAt="x"), b"?")
    JobRun.objects.create(name=JobRun.RETRY, started_at=clock.now() - timedelta(days=3), outcome="")
    russian.force_login(User.objects.get(username="ops"))
    assert find_english_words(russian, address) == set()


def test_check_for_english_words_finds_english_text_on_a_screen(
    application_with_gap: Store, client: Client
) -> None:
    client.force_login(User.objects.get(username="support"))
    page = read_visible_text(client.get(A1).content.decode())
    with translation.override("ru"):
        assert {"Version", "never", "arrived"} <= set(WORD.findall(page)) & collect_english_words()
