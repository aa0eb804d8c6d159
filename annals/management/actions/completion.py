"""What `annals completion` does."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module

from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from annals.completion import tree

PROGRAM = "annals"


def run(command: BaseCommand, shell: str) -> None:
    """Print the script for the shell: bash, zsh or fish."""
    commands = tree.program(dict(sorted(_parsers())))
    made: str = import_module(f"annals.completion.{shell}").script(PROGRAM, commands)
    command.stdout.write(made, ending="")


def _parsers() -> Iterator[tuple[str, tuple[ArgumentParser, str]]]:
    """All commands, Django's as well, each with its parser and the first sentence of its help."""
    for name, app in get_commands().items():
        command = app if isinstance(app, BaseCommand) else load_command_class(app, name)
        help_text = " ".join(str(command.help).split())
        yield name, (command.create_parser(PROGRAM, name), help_text.partition(". ")[0])
