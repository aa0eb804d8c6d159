"""`manage.py COMMAND --help` without Django's start, which takes most of its time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
APPS: Final = ("annals", "annals/access", "history", "ingest")


def print_help(arguments: Sequence[str]) -> None:
    """Print the help of one of our commands and exit, if that is what is asked for, and if the
    command can be imported without models. Otherwise Django does it.

    arguments: the command line after the program's name.
    """
    if not {"-h", "--help"} & set(arguments[1:]):
        return
    name, *words = arguments
    folder = next((app for app in APPS if _file(app, name).is_file()), None)
    if folder is None or not name.strip("-").replace("-", "").isalpha():
        return
    try:
        module = import_module(f"{folder.replace('/', '.')}.management.commands.{name}")
        command = module.Command()
        command._called_from_command_line = True  # wrong arguments end with a usage, not a trace
        parser = command.create_parser("manage.py", name)
    except Exception:
        return  # it needs models, or a setting is wrong: the usual start says which
    parser.parse_args(words)  # which exits


def names() -> list[str]:
    """Our commands, in the order of the alphabet."""
    files = (each for app in APPS for each in _file(app, "*").parent.glob("[!_]*.py"))
    return sorted(each.stem for each in files)


def _file(app: str, name: str) -> Path:
    return ROOT / app / "management" / "commands" / f"{name}.py"
