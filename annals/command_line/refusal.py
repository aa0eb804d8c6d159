"""One sentence about words of a command line that are wrong, with the word that may be meant."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import NoReturn

from history.plain_text import one_line

WRONG = 2
KINDS = {
    "int": "is not a whole number",
    "float": "is not a number",
    "fromisoformat": "is not a day as 2026-12-31",
}
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
_VALUE = re.compile(r"argument (\S+): invalid (\w+) value: (.*)", re.DOTALL)
_NO_VALUE = re.compile(r"argument (\S+): expected (?:one|at least one) argument")
_MISSING = re.compile(r"the following arguments are required: (.*)")


def end(program: str, sentence: str) -> NoReturn:
    """Print the sentence and exit with 2."""
    shown = one_line(sentence, "\n")
    sys.stderr.write(f"{program}: {shown}\n")
    sys.exit(WRONG)


def command(program: str, word: str, known: Iterable[str]) -> str:
    """The sentence about a command that does not exist."""
    return f"there is no command {word}. {_meant(word, known, f'{program} help')}"


def option(word: str, known: Iterable[str], where: str = "annals help") -> str:
    """The sentence about an option that does not exist. where: what lists those that do."""
    return f"there is no option {word}. {_meant(word, known, where)}"


def check(called: str, parser: ArgumentParser, words: Sequence[str]) -> None:
    """End the process with a sentence if the command cannot have these words; with its help, if
    they ask for it.

    called: program and command. parser: of Django, and not as called from the command line: it
    raises an error.
    """
    from django.core.management.base import CommandError

    ours = words[: words.index("--")] if "--" in words else words
    if "--version" in ours and _is_of_django(parser, "--version"):
        program = called.partition(" ")[0]
        end(called, f"there is no option --version. `{program} --version` prints the version.")
    try:
        parser.parse_args(words)
    except CommandError as error:
        end(called, sentence(str(error).removeprefix("Error: "), parser, words))


def sentence(message: str, parser: ArgumentParser, words: Sequence[str]) -> str:
    """What argparse says, in words."""
    path = list(_path(parser, words))
    where = f"{path[-1].prog} --help"
    if found := _UNKNOWN.fullmatch(message):
        word = found[1].split()[0].partition("=")[0]
        known = [each for one in path for each in one._option_string_actions]
        if word.startswith("-"):
            return option(word, known, where)
        return f"{word!r} is one word too many. `{where}` says which it takes."
    if found := _CHOICE.fullmatch(message):
        choices = re.findall(r"[^\s,']+", found[3])
        meant = get_close_matches(found[2], choices, 1)
        guess = f" Did you mean {meant[0]}?" if meant else ""
        return f"{found[1]} cannot be {found[2]!r}, only {', '.join(choices)}.{guess}"
    if found := _VALUE.fullmatch(message):
        kind = KINDS.get(found[2], "is not a valid value")
        return f"{found[1]}: {found[3]} {kind}."
    if found := _NO_VALUE.fullmatch(message):
        return f"{found[1]} needs a value. `{where}` says which."
    if found := _MISSING.fullmatch(message):
        return f"{found[1]} is missing. `{where}` says what it is."
    message = message.removeprefix("argument ")
    return message if message.endswith((".", "?")) else f"{message}."


def _meant(word: str, known: Iterable[str], where: str) -> str:
    found = get_close_matches(word, list(known), 1)
    return f"Did you mean {found[0]}?" if found else f"`{where}` lists what there is."


def _path(parser: ArgumentParser, words: Sequence[str]) -> Iterator[ArgumentParser]:
    """The parser and those of the actions that the words choose."""
    yield parser
    for action in parser._actions:  # argparse has no public access
        if isinstance(action, _SubParsersAction):
            for number, word in enumerate(words):
                if word in action.choices:
                    yield from _path(action.choices[word], words[number + 1 :])
                    return


def _is_of_django(parser: ArgumentParser, name: str) -> bool:
    """Whether the option is the one that all commands of Django have. Some commands have one of
    the same name that takes a value."""
    action = parser._option_string_actions.get(name)
    return action is not None and action.nargs == 0
