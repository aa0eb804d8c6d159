"""docs/runbook.md has a section for each alert, in the order of the rules, and each is complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core import management

from annals.docs import commands_page

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/runbook.md").read_text()
GROUPS: list[dict[str, Any]] = yaml.safe_load((ROOT / "docker/prometheus/rules.yaml").read_text())[
    "groups"
]
RULES = [rule for group in GROUPS for rule in group["rules"]]
SECTIONS = dict(re.findall(r"^### (Annals\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
PARTS = ("**Look:**", "**Do:**", "**How long:**")


def test_the_sections_are_the_alerts_in_their_order() -> None:
    assert list(SECTIONS) == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_its_section(rule: dict[str, Any]) -> None:
    anchor = rule["alert"].lower()
    assert rule["annotations"]["runbook_url"] == f"{{{{ $externalLabels.runbook }}}}#{anchor}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_section_says_what_where_and_how_long(rule: dict[str, Any]) -> None:
    section = SECTIONS[rule["alert"]]
    means = section.strip()
    assert means.startswith(f"*{rule['labels']['severity']}.* ")
    places = [section.index(part) for part in PARTS]
    assert places == sorted(places)
    assert all(section.count(part) == 1 for part in PARTS)
    look = section[places[0] : places[1]]
    assert "`" in look, "which command, query or log shows it?"


def test_prometheus_has_the_label_of_the_links() -> None:
    settings = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yaml").read_text())
    assert settings["global"]["external_labels"]["runbook"].endswith("/docs/runbook.md")


def test_alerts_name_only_jobs_that_are_scraped() -> None:
    settings = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yaml").read_text())
    jobs = {job["job_name"] for job in settings["scrape_configs"]}
    asked = {
        (rule["alert"], pattern)
        for rule in RULES
        for pattern in re.findall(r'\bjob=~?"([^"]+)"', rule["expr"])
    }
    assert asked
    missing = {each for each in asked if not any(re.fullmatch(each[1], job) for job in jobs)}
    assert missing == set()


def test_the_commands_exist() -> None:
    """Also their actions and options, as docs/commands.md has them."""
    reference = commands_page()
    ours = set(re.findall(r"^#+ annals (.+)$", reference, re.MULTILINE))
    asked = re.findall(r"annals ([a-z-]+(?: [a-z]+\b)?)([^`\n]*)", PAGE)
    assert len(asked) > 30
    for words, rest in asked:
        name = words.split()[0]
        assert words in ours or name in ours, words
        if words in ours:
            section = re.split(rf"^#+ annals {words}$", reference, flags=re.MULTILINE)[1]
            known = section.split("\n#")[0]
            for option in re.findall(r"(?<!\S)--[a-z-]+", rest):
                assert f"`{option}" in known, f"{words} {option}"
        assert name in management.get_commands()
