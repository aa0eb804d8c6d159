"""Settings, files, messages, addresses and Python of the pages are read by what reads them in
use."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from django.urls import resolve

from annals import env, librdkafka
from annals.access.oidc import providers
from annals.docs import ROOT
from annals.healing import answer, sources
from history.kinds import declared
from history.need_to_know import Application
from history.window import Window
from ingest.source import names
from ingest.source.decode import Decode
from ingest.source.message import Message
from outbox import conf
from outbox.inbox import conf as inbox_conf
from outbox.inbox import message
from tests.docs_blocks.checked import LINES, of, one
from tests.docs_blocks.pages import SPANS, Block, settings

WINDOW: Final = Window(date(2026, 1, 1), date(2027, 1, 1))
ROOT_TOPIC: Final = "top-storage.export.product-task"


def test_the_variables_are_settings() -> None:
    known = {*map(env.variable, env.Settings.__struct_fields__), "PGPASSFILE"}
    found = [name for _, line in LINES for name in settings(line)]
    assert len(found) >= 10
    assert {each for each in found if not each.startswith(env.KAFKA_PREFIX)} <= known
    given = dict.fromkeys((each for each in found if each.startswith(env.KAFKA_PREFIX)), "x")
    assert len(librdkafka.given(given)) == len(given)


@pytest.mark.parametrize("block", of("toml"), ids=lambda block: block.page)
def test_the_files_are_read(block: Block, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x" * 40)
    text = re.sub(r'"/run/secrets/[\w-]+"', f'"{tmp_path}/secret"', block.text)
    (tmp_path / "file.toml").write_text(text)
    [form] = set(re.findall(r"^\[\[(\w+)\]\]", text, re.MULTILINE))
    readers: dict[str, Callable[[Path], tuple[object, ...]]] = {
        "provider": providers.read, "source": sources.read, "kind": declared.read
    }  # fmt: skip
    assert len(readers[form](tmp_path / "file.toml")) == 1


def test_the_messages_are_json() -> None:
    assert len(of("json")) >= 6
    for block in of("json"):
        json.loads(block.text)


def test_the_message_of_the_contract_is_taken() -> None:
    text = one("json", "docs/contract.md")
    record = Decode({})(Message(ROOT_TOPIC, 0, 0, -1, None, text.encode()), WINDOW)
    assert (record.id, record.version) == ("T1", 1)


def test_the_envelopes_are_read(tmp_path: Path) -> None:
    file = tmp_path / "envelopes.json"
    file.write_text(one("json", "docs/kafka.md"))
    assert len(names.declared(file)) == 1


def test_the_last_line_of_an_answer_is_read() -> None:
    text = one("json", "docs/outbox.md")
    found, left = answer.read(b"{}\n" * 3 + text.strip().encode(), (3, 9))
    assert (list(found.waiting), left) == ([(8, 8)], None)


def test_the_properties_are_read(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(one("properties", "docs/kafka.md"))
    found = librdkafka.given({}, file)
    assert {"security.protocol", "sasl.password", "ssl.ca.location"} <= set(found)


def test_the_units_are_those_of_systemd() -> None:
    """Their commands are checked with all the others."""
    for block in of("ini"):
        unit = configparser.ConfigParser(interpolation=None)
        unit.read_string(block.text)
        assert "ExecStart" in unit["Service"]


def test_the_values_are_those_of_the_chart() -> None:
    chart = yaml.safe_load((ROOT / "docker/helm/annals/values.yaml").read_text())
    given = yaml.safe_load(one("yaml", "docs/kubernetes.md"))
    of_web = set(given["web"].pop("settings"))
    assert of_web <= {env.variable(name) for name in env.Settings.__struct_fields__}
    assert isinstance(chart["web"]["settings"], dict)
    assert [each for each in keys(given) if each not in set(keys(chart))] == []


def keys(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from keys(value, f"{above}{key}.")


def test_the_addresses_of_the_api_exist() -> None:
    found = [text for page, text in SPANS if re.match(r"GET (?!outbox)\w|GET /api", text)]
    assert len(found) >= 8
    for text in found:
        path = re.sub(r"\{\w+\}|\.\.\.$", "product-instance", text[4:].partition("?")[0])
        path = re.sub("^(?!/)", "/api/v1/", path).replace("/order/", "/product-instance/")
        resolve(path.replace("/applications/product-instance", "/applications/A1/history")
                if path.endswith("/product-instance") else path)  # fmt: skip


def run(text: str, place: dict[str, Any]) -> None:
    exec(text, place)  # noqa: S102 # it is that of our own pages


def test_the_python_compiles() -> None:
    assert len(of("python")) >= 4
    for block in of("python"):
        compile(block.text, block.page, "exec")


class Reader:
    """As a rule sees it."""

    def __init__(self, *rights: str) -> None:
        self.rights = rights

    def has_perm(self, name: str) -> bool:
        return name in self.rights


def test_the_rule_of_need_to_know_decides() -> None:
    place: dict[str, Any] = {}
    run(one("python", "docs/access.md"), place)
    rule = place["may_open"]
    [line] = [line for page, line in LINES if line.startswith("ANNALS_NEED_TO_KNOW=")]
    assert line.endswith(".annals_rules.may_open")
    nobody, sees = Reader(), Reader("history.view_sensitive")
    assert not rule(sees, Application("A1", None))
    assert rule(nobody, Application("A1", {"rate": "1"}))
    assert not rule(nobody, Application("A1", {"vip": True}))
    assert rule(sees, Application("A1", {"vip": True}))


def test_the_simulator_is_used_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    text = one("python", "docs/simulator.md")
    assert "applications=1000" in text
    place: dict[str, Any] = {}
    run(text.replace("applications=1000", "applications=2"), place)
    assert place["message"].topic.startswith("top-storage.export.")


def test_the_settings_of_a_service_are_read() -> None:
    head, _, models = one("python", "docs/outbox.md").partition("# models.py\n")
    place: dict[str, Any] = {"INSTALLED_APPS": [], "MIDDLEWARE": []}
    run(head, place)
    conf.read(place["OUTBOX"])
    imported = "".join(re.findall(r"^from .*\n", models, re.MULTILINE))
    run(imported, place)
    assert {"Recorded", "Kind"} <= set(place)


def test_the_handler_of_the_inbox_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    place: dict[str, Any] = {"INSTALLED_APPS": [], "__name__": "stock.inbox"}
    monkeypatch.setattr(message, "_handlers", {})
    run(one("python", "docs/inbox.md"), place)
    inbox_conf.read(place["INBOX"])
    assert [set(each.topics) for each in message.handlers().values()] == [{"shop.order"}]
