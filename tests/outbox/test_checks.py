"""What `manage.py check` says about settings, models and the database."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections, models
from django.test import override_settings
from django.test.utils import isolate_apps

from outbox import checks
from outbox.checks import TAG
from outbox.recorded import PartOf
from tests.outbox import settings
from tests.outbox.shop.models import Flag, Order


def found(**changes: Any) -> list[tuple[str | None, str]]:
    given = {**settings.OUTBOX, **changes}
    with override_settings(OUTBOX={name: value for name, value in given.items() if value != ...}):
        return [(each.id, each.msg) for each in run_checks(tags=[TAG])]


def test_a_service_that_is_set_up_right(service: str) -> None:
    assert found() == []
    assert found(KAFKA={"acks": -1, "enable.idempotence": "true"}) == []


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"CLIENT_ID": ...}, "missing: CLIENT_ID"),
        ({"CLIENT_ID": "x" * 65}, "CLIENT_ID must be a text of 1 to 64 characters"),
        ({"TOPICS": {}}, "TOPICS must map"),
        ({"TOPICS": {"a/b": "x"}}, "TOPICS must map"),
        ({"TOPIC": "x"}, "unknown: TOPIC; known are CLIENT_ID, TOPICS"),
        ({"KAFKA": {"acks": 1}}, "acks must be all"),
        ({"KAFKA": {"enable.idempotence": False}}, "enable.idempotence must be true"),
        ({"KAFKA": {"delivery.report.only.error": True}}, "only.error must be false"),
        ({"KAFKA": "localhost:9092"}, "KAFKA must map"),
        ({"SEND_UNCHANGED": "no"}, "SEND_UNCHANGED must be True or False"),
        ({"KEEP_DAYS": 29}, "KEEP_DAYS must be a whole number from 1 to 28"),
        ({"LEASE_SECONDS": 0}, "LEASE_SECONDS must be 1 or more"),
        ({"RETRY_FIRST_SECONDS": 10, "RETRY_MOST_SECONDS": 9}, "RETRY_MOST_SECONDS must be"),
    ],
)
def test_a_wrong_setting_is_named(service: str, changes: dict[str, Any], sentence: str) -> None:
    [(identity, text)] = found(**changes)
    assert identity == "outbox.E001"
    assert sentence in text


def test_an_entity_without_a_topic(service: str) -> None:
    errors = found(TOPICS={"product-instance": "x", "product-task": "y"})
    assert errors == [("outbox.E004", "The entity 'realty-info' has no topic.")]


def test_a_model_that_does_not_say_how_it_is_recorded(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("tests.outbox.shop.models.Flag.recorded_as")
    assert found() == [("outbox.E003", "recorded_as is missing.")]


def test_a_manager_that_records_no_bulk_changes(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: models.Manager[Flag] = models.Manager()
    manager.model = Flag
    monkeypatch.setitem(Flag._meta.__dict__, "default_manager", manager)
    [(identity, text)] = found()
    assert identity == "outbox.W002"
    assert "record nothing" in text


def test_a_second_manager_that_records_no_bulk_changes(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: models.Manager[Flag] = models.Manager()
    manager.model, manager.name = Flag, "archived"
    monkeypatch.setitem(Flag._meta.__dict__, "managers", [Flag._default_manager, manager])
    [(identity, text)] = found()
    assert (identity, text[-25:]) == ("outbox.W002", "record nothing: archived.")


def test_two_models_that_share_a_row(service: str) -> None:
    with isolate_apps("tests.outbox.shop"):

        class Special(Order):
            class Meta:
                app_label = "shop"

    assert [each.id for each in checks._check_family(Special)] == ["outbox.W003"]
    assert checks._check_family(Order) == []


def test_the_middleware_is_missing(service: str) -> None:
    with override_settings(MIDDLEWARE=[]):
        assert found() == [("outbox.W001", "Versions that requests record have no author.")]


def test_another_database_than_postgresql(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")
    [(identity, text)] = found()
    assert identity == "outbox.E002"
    assert text == "The outbox needs PostgreSQL; the database 'default' is sqlite."


def test_a_part_of_nothing_that_is_recorded(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.outbox.shop.models.Line.recorded_as", PartOf("order"))
    [(identity, text)] = found()
    assert identity == "outbox.E003"
    assert "It is a part of 'order', which is no foreign key" in text
