"""Annals' own commands and their parsers, without Django's start, which takes most of the time."""

from __future__ import annotations

from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
# Python runs this file as the command `annals`, from any folder.
PROGRAM: Final = ROOT / "annals" / "__main__.py"
# They extend commands of Django, whose arguments depend on the settings. These must not be read
# before the embedded server has started: they would have no database.
OF_DJANGO: Final = frozenset({"check", "makemigrations", "migrate"})
APPS: Final = ("annals", "annals/access", "history", "ingest")


def parser(program: str, name: str, raising: bool = False) -> ArgumentParser | None:
    """The parser of one of our commands; None if it is none of ours, extends one of Django's, or
    cannot be imported without models.

    program: as usages name it. raising: a wrong word raises django's CommandError; else it ends
    the process with a usage.
    """
    folder = next((app for app in APPS if _file(app, name).is_file()), None)
    if folder is None or name in OF_DJANGO or not name.replace("-", "").isalpha():
        return None
    try:
        module = import_module(f"{folder.replace('/', '.')}.management.commands.{name}")
        command = module.Command()
        command._called_from_command_line = not raising
        made: ArgumentParser = command.create_parser(program, name)
    except Exception:
        return None  # it needs models, or a setting is wrong: the usual start says which
    return made


def names() -> list[str]:
    """Our commands, in the order of the alphabet."""
    files = (each for app in APPS for each in _file(app, "*").parent.glob("[!_]*.py"))
    return sorted(each.stem for each in files)


def _file(app: str, name: str) -> Path:
    return ROOT / app / "management" / "commands" / f"{name}.py"
