"""`python -m annals.docs [--write]`: whether docs/ names every setting, command and option.

docs/settings.md and docs/commands.md are written from the code, so that they cannot be wrong.
"""

import os
import sys
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from annals import env

DOCS = Path(__file__).resolve().parent.parent / "docs"
OURS = ("annals", "history", "ingest")
# What every Django command accepts needs no words of ours.
EVERYWHERE = {
    *("--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback"),
    *("--no-color", "--force-color", "--skip-checks"),
}
COMMANDS_HEAD = """\
# Commands

<!-- Written by scripts/lint from the commands themselves: mend their help texts. -->

`manage.py` starts the embedded servers where `DATABASE_URL` or `KAFKA_BOOTSTRAP_SERVERS` is unset.
Django's own commands are there too; `migrate` is the one that every installation needs.

| script | what it does |
|---|---|
| `scripts/demo` | everything on this machine; `--check`, `--port PORT`, `--no-simulate` |
| `scripts/test` | the gate and all tests; with arguments: only pytest, with these arguments |
| `scripts/check` | the gate; edits nothing |
| `scripts/lint` | mends imports, formatting and generated pages |
| `scripts/kafka` | one node of Apache Kafka on this machine; needs Java and Maven |
"""
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
        case inspect.IntType() | inspect.FloatType():
            return _bounds(kinds)
        case inspect.StrType(pattern=str(pattern)):
            return ", ".join(f"`{word}`" for word in pattern.strip("^$()").split("|"))
        case inspect.StrType(min_length=int(length)) if length > 1:
            return f"text, {length} characters or more"
        case inspect.StrType():
            return "text"
        case inspect.VarTupleType():
            return "texts, comma-separated"
        case inspect.CustomType(cls=cls) if issubclass(cls, PurePath):
            return "path"
    raise TypeError(f"docs/settings.md has no words for {kinds}")


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    """`1 to 90`, `more than 0, to 1`, `1 or more`."""
    low = f"more than {kind.gt}," if kind.gt is not None else kind.ge
    if low is None:
        return f"up to {kind.le}"
    return f"{low} or more".replace(",", "") if kind.le is None else f"{low} to {kind.le}"


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


def commands_page() -> str:
    """docs/commands.md as it should be: every command of ours with its actions and options, in
    the words that `--help` has."""
    from django.core import management

    theirs = set(management.find_commands(management.__path__[0]))
    ours = sorted(
        (name, app)
        for name, app in management.get_commands().items()
        if app in OURS and name not in theirs
    )
    sections = (
        _section(
            management.load_command_class(app, name).create_parser("manage.py", name),
            f"manage.py {name}",
        )
        for name, app in ours
    )
    return COMMANDS_HEAD + "\n".join(line for section in sections for line in section) + "\n"


def _section(parser: ArgumentParser, name: str, words: str = "", level: int = 2) -> Iterator[str]:
    """Lines about a command, then about its actions."""
    yield f"\n{'#' * level} {name}\n"
    yield _sentence(parser.description or words)
    formatter = parser.formatter_class(prog=name)
    actions: list[tuple[ArgumentParser, str, str]] = []
    rows = []
    for action in parser._actions:  # argparse has no public way to ask
        if isinstance(action, _SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            actions = [(sub, word, helps.get(word, "")) for word, sub in action.choices.items()]
        elif not EVERYWHERE & set(action.option_strings):
            says = formatter._expand_help(action) if action.help else ""
            rows.append(f"| {_spelling(action)} | {_cell(says)} |")
    if rows:
        yield "\n| option | what it does |\n|---|---|\n" + "\n".join(rows)
    for sub, word, says in actions:
        yield from _section(sub, f"{name} {word}", says, level + 1)


def _spelling(action: Action) -> str:
    """`--port PORT` or the words that an argument may be."""
    if action.nargs == 0:
        return ", ".join(f"`{option}`" for option in action.option_strings)
    if action.choices is not None:
        value = "|".join(map(str, action.choices))
    else:
        value = str(action.metavar or action.dest.upper())
    names = ", ".join(action.option_strings)
    return _cell(f"`{names} {value}`".replace("` ", "`"))


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {"settings.md": settings_page, "commands.md": commands_page}


def main(arguments: list[str]) -> int:
    """Exit code: 1 where a page is stale."""
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if "--write" in arguments:
            path.write_text(text)
        if not path.exists() or path.read_text() != text:
            stale.append(f"docs/{name} is stale: run scripts/lint")
    print("\n".join(stale) or "docs/ is complete")
    return 1 if stale else 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    import django

    django.setup()
    sys.exit(main(sys.argv[1:]))
