"""The commands in blocks and in the text take their words, as the parsers of the commands say."""

from __future__ import annotations

import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator

from django.core.management import CommandError, get_commands, load_command_class

from annals.docs import ROOT
from tests.docs_blocks.checked import LINES, of
from tests.docs_blocks.named import ELSEWHERE
from tests.docs_blocks.pages import SPANS, commands, of_annals


def parser_of(name: str) -> ArgumentParser:
    """Of a command of Annals. Raises CommandError if there is none of this name."""
    app = get_commands().get(name)
    if app is None:
        raise CommandError(f"there is no command {name}")
    command = load_command_class(str(app), name)
    command._called_from_command_line = False
    made: ArgumentParser = command.create_parser("annals", name)
    return made


def wrong(words: tuple[str, ...]) -> str | None:
    """Why a command does not take these words; None: it does."""
    if words == ("--version",):
        return None
    try:
        parser_of(words[0]).parse_args(words[1:])
    except CommandError as error:
        return str(error)
    return None


def in_blocks() -> list[tuple[str, tuple[str, ...]]]:
    """Page and words, without `annals`, of every command of Annals in a block."""
    found = [
        (page, of_annals(said.words))
        for page, line in LINES
        if (page, line) not in ELSEWHERE
        for said in commands(page, line)
    ]
    units = [
        (each.page, of_annals(tuple(line.removeprefix("ExecStart=").split())))
        for each in of("ini")
        for line in each.text.splitlines()
        if line.startswith("ExecStart=")
    ]
    return [(page, words) for page, words in [*found, *units] if words]


def test_the_commands_of_the_blocks_take_their_words() -> None:
    found = in_blocks()
    assert len(found) > 60
    assert {(page, words): why for page, words in found if (why := wrong(words))} == {}


def test_the_commands_in_the_text_have_their_actions_and_options() -> None:
    """`annals ledger acknowledge TOPIC --why TEXT`: values stand for others, and a command may be
    named without all that it needs."""
    found = [(page, text.split()[1:]) for page, text in SPANS if re.match(r"annals [a-z]", text)]
    assert len(found) > 180
    assert {(page, *words): why for page, words in found if (why := unknown(words))} == {}


def unknown(words: list[str]) -> str | None:
    """What a command of Annals has not."""
    if words[0] == "help":
        return None
    try:
        path = [parser_of(words[0])]
    except CommandError as error:
        return str(error)
    for word in words[1:]:
        actions = [each for each in path[-1]._actions if isinstance(each, _SubParsersAction)]
        if word.startswith("--"):
            if not any(word.split("=")[0] in each._option_string_actions for each in path):
                return f"there is no option {word}"
        elif actions and word in actions[0].choices:
            path.append(actions[0].choices[word])
        elif actions and word.islower() and len(path) == 1 and word == words[1]:
            return f"there is no action {word}"
    return None


def test_annals_is_called_annals() -> None:
    """`manage.py` is that of a service which has the outbox or the inbox, and in a clone."""
    services = ("docs/outbox.md", "docs/inbox.md", "docs/integrate.md")
    told = {
        ("docs/install.md", "manage.py migrate"),
        ("docs/structure.md", "manage.py inbox"),
        ("docs/structure.md", "manage.py outbox"),
    }
    said = [(page, text) for page, text in [*SPANS, *LINES] if "manage.py " in text]
    assert {each for each in said if each[0] not in services} == told


def test_the_programs_of_the_repository_have_their_options() -> None:
    """`python -m tests.soak --minutes 60`, `scripts/kafka start --secured`."""
    found = re.compile(
        r"(?:python -m ((?:tests|annals|benchmarks)(?:\.\w+)*)|(scripts/[\w.]+))(.*)"
    )
    seen = 0
    for page, text in [*SPANS, *LINES]:
        if match := found.search(text):
            seen += 1
            source = "".join(program(match[1], match[2]))
            options = re.findall(r"(?<=\s)--?[a-z][a-z-]*", match[3])
            if match[2] != "scripts/test":
                unknown = [each for each in options if each.lstrip("-") not in source]
                assert unknown == [], f"{page}: {text}"
    assert seen > 60


def program(module: str | None, script: str | None) -> Iterator[str]:
    """The source of a program. Fails if there is none."""
    path = ROOT / (script or str(module).replace(".", "/"))
    if script:
        yield (text := path.read_text())
        for started in re.findall(r"-m ((?:annals|tests)[\w.]*)", text):
            yield from program(started, None)
    elif path.is_dir():
        assert (path / "__main__.py").exists(), path
        yield from (each.read_text() for each in path.rglob("*.py"))
    else:
        yield path.with_suffix(".py").read_text()
