"""Annals and its outbox accept the code blocks and the commands in the documentation.

A test parses them with the same code that parses them in production.
"""

import json
import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from django.core.management import CommandError, get_commands, load_command_class
from django.urls import resolve

from annals.access.oidc import providers
from annals.configuration import env
from annals.configuration.fields import Settings
from history.common import private_files
from history.kinds import kinds_file
from history.policy.need_to_know import Application
from history.store.days.window import Window
from outbox import conf
from outbox.inbox import conf as inbox_conf
from outbox.inbox import message
from outbox.relay import answer as request
from outbox.relay.answer import VersionRequest
from scripts.pages import ROOT
from tests.docs_blocks.pages import (
    LINES,
    SPANS,
    Block,
    get_block_text,
    list_blocks,
    list_commands,
    list_settings,
    select_annals_words,
)


def make_parser(name: str) -> ArgumentParser:
    """Make the parser of a command of Annals.

    Raises:
        CommandError: There is no command of this name.
    """
    app = get_commands().get(name)
    if app is None:
        raise CommandError(f"there is no command {name}")
    command = load_command_class(str(app), name)
    command._called_from_command_line = False
    parser: ArgumentParser = command.create_parser("annals", name)
    return parser


def explain_refused_command(words: tuple[str, ...]) -> str | None:
    """Return why Annals refuses a command, or None if Annals accepts it.

    Args:
        words: The words of the command line after `annals`.
    """
    if words == ("--version",):
        return None
    try:
        make_parser(words[0]).parse_args(words[1:])
    except CommandError as error:
        return str(error)
    return None


def list_annals_commands() -> list[tuple[str, tuple[str, ...]]]:
    """Return the commands of Annals in the code blocks of the documentation.

    Returns:
        Tuples of the page that has the command, and the words of the command after `annals`.
    """
    pairs = [
        (page, select_annals_words(command.words))
        for page, line in LINES
        for command in list_commands(page, line)
    ]
    units = [
        (item.page, select_annals_words(tuple(line.removeprefix("ExecStart=").split())))
        for item in list_blocks("ini")
        for line in item.text.splitlines()
        if line.startswith("ExecStart=")
    ]
    return [(page, words) for page, words in [*pairs, *units] if words]


def test_commands_in_documentation_have_valid_arguments() -> None:
    pairs = list_annals_commands()
    assert len(pairs) > 50
    assert {
        (page, words): reason for page, words in pairs if (reason := explain_refused_command(words))
    } == {}


def test_commands_in_running_text_have_existing_actions_and_options() -> None:
    """A command in running text may have placeholders, such as TOPIC in `annals ledger acknowledge
    TOPIC --why TEXT`, and it may lack required options."""
    pairs = [(page, text.split()[1:]) for page, text in SPANS if re.match(r"annals [a-z]", text)]
    assert len(pairs) > 150
    assert {
        (page, *words): reason for page, words in pairs if (reason := find_unknown_words(words))
    } == {}


def find_unknown_words(words: list[str]) -> str | None:
    """Return which command, action or option does not exist, or None if all exist."""
    if words[0] == "help":
        return None
    try:
        path = [make_parser(words[0])]
    except CommandError as error:
        return str(error)
    for word in words[1:]:
        actions = [item for item in path[-1]._actions if isinstance(item, _SubParsersAction)]
        if word.startswith("--"):
            if not any(word.split("=")[0] in item._option_string_actions for item in path):
                return f"there is no option {word}"
        elif actions and word in actions[0].choices:
            path.append(actions[0].choices[word])
        elif actions and word.islower() and len(path) == 1 and word == words[1]:
            return f"there is no action {word}"
    return None


WINDOW: Final = Window(date(2026, 1, 1), date(2027, 1, 1))


def test_environment_variables_in_documentation_are_settings() -> None:
    setting_names = {*map(env.get_variable_name, Settings.__struct_fields__), "PGPASSFILE"}
    variables = [name for _, line in LINES for name in list_settings(line)]
    assert len(variables) >= 10
    assert {item for item in variables if not item.startswith(env.KAFKA_PREFIX)} <= setting_names
    kafka_variables = dict.fromkeys(
        (item for item in variables if item.startswith(env.KAFKA_PREFIX)), "x"
    )
    assert len(env.read_librdkafka_settings(kafka_variables)) == len(kafka_variables)


@pytest.mark.parametrize("block", list_blocks("toml"), ids=lambda block: block.page)
def test_configuration_files_in_documentation_are_readable(block: Block, tmp_path: Path) -> None:
    private_files.write_private_file(tmp_path / "secret", "x" * 40)
    text = re.sub(r'"/run/secrets/[\w-]+"', f'"{tmp_path}/secret"', block.text)
    (tmp_path / "file.toml").write_text(text)
    [form] = set(re.findall(r"^\[\[(\w+)\]\]", text, re.MULTILINE))
    readers: dict[str, Callable[[Path], tuple[object, ...]]] = {
        "provider": providers.read_providers,
        "kind": kinds_file.read_kinds_file,
    }
    assert len(readers[form](tmp_path / "file.toml")) == 1


def test_messages_in_documentation_are_json() -> None:
    assert len(list_blocks("json")) >= 5
    for block in list_blocks("json"):
        json.loads(block.text)


def test_request_for_missing_versions_in_documentation_is_parsed() -> None:
    assert request.parse_request(get_block_text("json", "docs/gaps.md")) == VersionRequest(
        "product-instance", "A1", 3, 4
    )


def test_annals_accepts_kafka_properties_of_the_documentation(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    private_files.write_private_file(file, get_block_text("properties", "docs/kafka.md"))
    librdkafka_settings = env.read_librdkafka_settings({}, file)
    assert {"security.protocol", "sasl.password", "ssl.ca.location"} <= set(librdkafka_settings)


def test_helm_values_in_documentation_exist_in_chart() -> None:
    chart = yaml.safe_load((ROOT / "docker/helm/annals/values.yaml").read_text())
    example = yaml.safe_load(get_block_text("yaml", "docs/kubernetes.md"))
    of_web = set(example["web"].pop("settings"))
    assert of_web <= {env.get_variable_name(name) for name in Settings.__struct_fields__}
    assert isinstance(chart["web"]["settings"], dict)
    assert [item for item in list_keys(example) if item not in set(list_keys(chart))] == []


def list_keys(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from list_keys(value, f"{above}{key}.")


def test_api_addresses_in_documentation_exist() -> None:
    addresses = [text for page, text in SPANS if re.match(r"GET (?!outbox)\w|GET /api", text)]
    assert len(addresses) >= 7
    for text in addresses:
        path = re.sub(r"\{\w+\}|\.\.\.$", "product-instance", text[4:].partition("?")[0])
        path = re.sub("^(?!/)", "/api/v1/", path).replace("/order/", "/product-instance/")
        resolve(
            path.replace("/applications/product-instance", "/applications/A1/history")
            if path.endswith("/product-instance")
            else path
        )


def execute(text: str, namespace: dict[str, Any]) -> None:
    exec(text, namespace)  # noqa: S102 # the text is from our own pages


def test_python_in_documentation_compiles() -> None:
    assert len(list_blocks("python")) >= 4
    for block in list_blocks("python"):
        compile(block.text, block.page, "exec")


class FakeViewer:
    """A viewer with the part of its interface that a need-to-know rule uses."""

    def __init__(self, *rights: str) -> None:
        self.rights = rights

    def has_perm(self, name: str) -> bool:
        return name in self.rights


def test_documented_need_to_know_rule_hides_vip_applications_from_plain_viewers() -> None:
    namespace: dict[str, Any] = {}
    execute(get_block_text("python", "docs/access.md"), namespace)
    rule = namespace["may_open"]
    [line] = [line for page, line in LINES if line.startswith("ANNALS_NEED_TO_KNOW=")]
    assert line.endswith(".annals_rules.may_open")
    plain_viewer, privileged_viewer = FakeViewer(), FakeViewer("history.view_sensitive")
    assert not rule(privileged_viewer, Application("A1", None))
    assert rule(plain_viewer, Application("A1", {"rate": "1"}))
    assert not rule(plain_viewer, Application("A1", {"vip": True}))
    assert rule(privileged_viewer, Application("A1", {"vip": True}))


def test_documented_simulator_program_makes_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    text = get_block_text("python", "docs/simulator.md")
    assert "applications=1000" in text
    namespace: dict[str, Any] = {}
    execute(text.replace("applications=1000", "applications=2"), namespace)
    assert namespace["message"].topic.startswith("top-storage.export.")


def test_documented_outbox_settings_are_read() -> None:
    head, _, models = get_block_text("python", "docs/outbox.md").partition("# models.py\n")
    namespace: dict[str, Any] = {"INSTALLED_APPS": [], "MIDDLEWARE": []}
    execute(head, namespace)
    conf.OutboxConf.from_setting(namespace["OUTBOX"])
    imported = "".join(re.findall(r"^from .*\n", models, re.MULTILINE))
    execute(imported, namespace)
    assert {"Recorded", "Kind"} <= set(namespace)


def test_documented_inbox_handler_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"INSTALLED_APPS": [], "__name__": "stock.inbox"}
    monkeypatch.setattr(message, "_handlers", {})
    execute(get_block_text("python", "docs/inbox.md"), namespace)
    inbox_conf.InboxConf.from_setting(namespace["INBOX"])
    assert [set(handler.topics) for handler in message.list_handlers().values()] == [{"shop.order"}]
