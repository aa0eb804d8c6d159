"""`manage.py check` reports wrong settings and models of the outbox."""

from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import models
from django.test import override_settings

from outbox.recording.checks import CHECK_TAG
from tests.outbox import settings
from tests.outbox.shop.models import Flag


def list_problems(**changes: Any) -> list[tuple[str | None, str]]:
    changed = {**settings.OUTBOX, **changes}
    with override_settings(OUTBOX={name: value for name, value in changed.items() if value != ...}):
        return [(problem.id, problem.msg) for problem in run_checks(tags=[CHECK_TAG])]


def test_checks_report_nothing_when_settings_and_models_are_right(service: str) -> None:
    assert list_problems() == []


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"CLIENT_ID": ...}, "missing: CLIENT_ID"),
        ({"CLIENT_ID": "x" * 65}, "CLIENT_ID must be a text of 1 to 64 characters"),
        ({"TOPICS": {"a/b": "x"}}, "TOPICS must map"),
        ({"TOPIC": "x"}, "unknown: TOPIC; known are "),
        ({"KAFKA": "localhost:9092"}, "KAFKA must map"),
        ({"KEEP_DAYS": 29}, "KEEP_DAYS must be a whole number from 1 to 28"),
        ({"LEASE_SECONDS": 0}, "LEASE_SECONDS must be 1 or more"),
        ({"RETRY_FIRST_SECONDS": 10, "RETRY_MOST_SECONDS": 9}, "RETRY_MOST_SECONDS must be"),
    ],
)
def test_settings_check_names_the_wrong_value(
    service: str, changes: dict[str, Any], sentence: str
) -> None:
    [(identity, text)] = list_problems(**changes)
    assert identity == "outbox.E001"
    assert sentence in text


@pytest.mark.parametrize("name", [None, "archived"])
def test_check_warns_of_a_manager_whose_bulk_changes_are_not_recorded(
    service: str, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    manager: models.Manager[Flag] = models.Manager()
    manager.model, manager.name = Flag, name or "default"
    if name is None:
        monkeypatch.setitem(Flag._meta.__dict__, "default_manager", manager)
    else:
        monkeypatch.setitem(Flag._meta.__dict__, "managers", [Flag._default_manager, manager])
    [(identity, text)] = list_problems()
    assert (identity, text.rpartition(": ")[2]) == ("outbox.W002", f"{name or 'default'}.")


def test_check_warns_when_the_author_middleware_is_missing(service: str) -> None:
    with override_settings(MIDDLEWARE=[]):
        text = "Versions that are recorded during HTTP requests have no author."
        assert list_problems() == [("outbox.W001", text)]
