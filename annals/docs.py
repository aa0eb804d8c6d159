"""`python -m annals.docs [--write]`: whether docs/ names every setting, command and option.

docs/settings.md is written from annals.env; docs/commands.md is written by hand and only checked.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from annals import env

DOCS = Path(__file__).resolve().parent.parent / "docs"
OURS = ("annals", "history", "ingest")
SECTION = re.compile(r"^## manage\.py (\S+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# What every Django command accepts needs no words of ours.
EVERYWHERE = {
    *("--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback"),
    *("--no-color", "--force-color", "--skip-checks"),
}
HEAD = """\
# Settings

<!-- Written by scripts/lint from annals/env.py: mend it there. -->

Annals is set up by environment variables.
A wrong value stops the start with a sentence that names it; so does a name that starts with
`ANNALS_` and is not in this table.
An empty value counts as unset.

| variable | value | unset | what it does |
|---|---|---|---|
"""
TAIL = """
Every setting of librdkafka can be given too: `ANNALS_KAFKA_` and its name in capitals, with
underscores for dots.
`ANNALS_KAFKA_SASL_MECHANISM` is `sasl.mechanism`.
"""


def settings_page() -> str:
    """docs/settings.md as it should be: a row for each field of Settings, in their order."""
    fields = msgspec.structs.fields(env.Settings)
    hints = get_type_hints(env.Settings, include_extras=True)
    rows = [
        f"| `{env.variable(field.name)}` | {_kind(hints[field.name])} "
        f"| {_default(field.default)} | {_description(hints[field.name])} |"
        for field in fields
    ]
    return HEAD + "\n".join(rows) + "\n" + TAIL


def _kind(hint: Any) -> str:
    kinds = inspect.type_info(hint)
    while isinstance(kinds, inspect.Metadata):
        kinds = kinds.type
    if isinstance(kinds, inspect.UnionType):
        kinds = next(kind for kind in kinds.types if not isinstance(kind, inspect.NoneType))
        while isinstance(kinds, inspect.Metadata):
            kinds = kinds.type
    match kinds:
        case inspect.BoolType():
            return "`true`, `false`"
        case inspect.IntType(ge=low, le=high):
            return f"{low} to {high}"
        case inspect.StrType(pattern=str(pattern)):
            return ", ".join(f"`{word}`" for word in pattern.strip("^$()").split("|"))
        case inspect.StrType(min_length=int(length)):
            return f"text, {length} characters or more"
        case inspect.StrType():
            return "text"
        case inspect.VarTupleType():
            return "texts, comma-separated"
        case inspect.CustomType(cls=cls) if issubclass(cls, PurePath):
            return "directory"
    raise TypeError(f"docs/settings.md has no words for {kinds}")


def _default(default: object) -> str:
    match default:
        case None:
            return ""
        case bool():
            return f"`{str(default).lower()}`"
        case tuple():
            return f"`{','.join(map(str, default))}`"
    return f"`{default}`"


def _description(hint: Any) -> str:
    for part in get_args(hint):
        if isinstance(part, msgspec.Meta) and part.description:
            return part.description
    raise TypeError(f"{hint} has no description")


def missing_from(page: str) -> Iterator[str]:
    """What docs/commands.md does not say: a `## manage.py NAME` for each command of ours, and in it
    every option and action in backticks."""
    from django.core.management import get_commands, load_command_class

    sections = dict(SECTION.findall(page))
    for name, app in sorted(get_commands().items()):
        if app not in OURS:
            continue
        if name not in sections:
            yield f"docs/commands.md has no section `## manage.py {name}`"
            continue
        parser = load_command_class(app, name).create_parser("manage.py", name)
        for word in sorted(_words(parser)):
            if not re.search(rf"`[^`\n]*(?<![\w-]){re.escape(word)}(?![\w-])", sections[name]):
                yield f"docs/commands.md, manage.py {name}: `{word}` is not there"


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options (by their longest name) and fixed words that a command accepts, beyond those
    that every Django command has."""
    for action in parser._actions:  # argparse has no public way to ask
        if action.option_strings:
            longest = max(action.option_strings, key=len)
            if longest not in EVERYWHERE:
                yield longest
        elif action.choices is not None:
            yield from map(str, action.choices)
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _words(sub)


def main(arguments: list[str]) -> int:
    """Exit code: 1 where something is missing or stale, each on a line of its own."""
    page = DOCS / "settings.md"
    if "--write" in arguments:
        page.write_text(settings_page())
    problems = list(missing_from((DOCS / "commands.md").read_text()))
    if page.read_text() != settings_page():
        problems.append("docs/settings.md is stale: run scripts/lint")
    print("\n".join(problems) or "docs/ is complete")
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    import django

    django.setup()
    sys.exit(main(sys.argv[1:]))
