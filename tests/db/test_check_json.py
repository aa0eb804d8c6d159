"""`annals check --json`: what Django's checks found, for programs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import checks
from django.core.checks.registry import registry
from django.core.management import CommandError, call_command
from pytest_django import Settings

from tests.shape import shaped

FOUND = (
    checks.Info("It may be.", id="t.I001"),
    checks.Error("It is wrong.", hint="Do it.", obj=User, id="t.E001"),
    checks.Warning("It is late.", obj="the clock", id="t.W001"),
)


@pytest.fixture
def few() -> Iterator[None]:
    """Nothing is checked but what finds this."""
    before = registry.registered_checks, registry.deployment_checks

    def found(**_: Any) -> list[checks.CheckMessage]:
        return list(FOUND)

    registry.registered_checks, registry.deployment_checks = set(), set()
    registry.register(found, "few")
    yield
    registry.registered_checks, registry.deployment_checks = before


def said(*words: str) -> tuple[Any, int]:
    """What is printed, and the exit code."""
    out, code = io.StringIO(), 0
    try:
        call_command("check", "--json", *words, stdout=out)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return shaped("check", out.getvalue()), code


def test_each_finding_the_worst_first(few: None) -> None:
    found, code = said()
    assert code == 1
    assert [each["id"] for each in found] == ["t.E001", "t.W001", "t.I001"]
    assert found[0] == {
        "id": "t.E001",
        "level": "ERROR",
        "object": "auth.User",
        "message": "It is wrong.",
        "hint": "Do it.",
    }
    assert (found[1]["object"], found[2]["object"], found[2]["hint"]) == ("the clock", None, None)


def test_the_exit_code_is_that_of_the_level(few: None, settings: Settings) -> None:
    assert said("--fail-level", "CRITICAL")[1] == 0
    settings.SILENCED_SYSTEM_CHECKS = ["t.E001"]
    assert [each["id"] for each in said()[0]] == ["t.W001", "t.I001"]
    assert said()[1] == 0
    assert said("--fail-level", "WARNING")[1] == 1


def test_no_finding_is_an_empty_list(few: None) -> None:
    registry.registered_checks = set()
    assert said() == ([], 0)


def test_tags_have_no_json() -> None:
    with pytest.raises(CommandError, match="--list-tags"):
        said("--list-tags")


def test_as_text_the_findings_are_on_standard_output(few: None) -> None:
    out, err = io.StringIO(), io.StringIO()
    call_command("check", "--fail-level", "CRITICAL", stdout=out, stderr=err, no_color=True)
    assert "(t.E001) It is wrong." in out.getvalue()
    assert "(t.W001) It is late." in out.getvalue()
    assert err.getvalue() == ""
