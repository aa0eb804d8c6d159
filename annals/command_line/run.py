"""Runs a command. Its words are checked before a server is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from annals import __version__, own_commands
from annals.command_line import ending, overview, refusal, streams


def main(given: Sequence[str] | None = None) -> None:
    """given: the command line with the name of the program; default: that of this process."""
    ending.run(lambda: _run(given))


def _run(given: Sequence[str] | None) -> None:
    argv = list(sys.argv if given is None else given)
    program = Path(argv[0]).name
    if program == "__main__.py":
        program = "annals"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    if os.environ.get("NO_COLOR"):
        os.environ["DJANGO_COLORS"] = "nocolor"
    words = _usual(argv[1:])
    _answer_at_once(program, words)
    name, *rest = words
    if (parser := own_commands.parser(program, name, raising=True)) is not None:
        refusal.check(f"{program} {name}", parser, rest)
    if not streams.only_reads(words):
        streams.keep_on()
    from annals.start import prepare

    prepare(words, lambda: _rehearse(program, words))
    from annals.command_line.django import Commands

    Commands([program, *words]).execute()


def _usual(words: list[str]) -> list[str]:
    """`help NAME` is `NAME --help`; no words are `help`."""
    match words:
        case [] | ["-h" | "--help"]:
            return ["help"]
        case ["-h" | "--help", *rest]:
            return ["help", *rest]
        case ["help", name] if not name.startswith("-"):
            return [name, "--help"]
    return words


def _answer_at_once(program: str, words: list[str]) -> None:
    """What needs no command: the version and the list of commands."""
    match words:
        case ["--version"] | ["version", *_]:
            print(__version__)
        case ["help"]:
            print(overview.text(program))
        case ["help", "--all"]:
            words[1:] = []  # Django's list
            return
        case ["help", "--commands"]:
            return
        case ["help", option, *_] | [option, *_] if option.startswith("-"):
            refusal.end(program, refusal.option(option, ["--help", "--version"]))
        case _:
            return
    sys.exit()


def _rehearse(program: str, words: Sequence[str]) -> None:
    """Let Django look at the words of one of its commands, in a process of its own: the settings
    that it loads have no database yet. Ends this process if the words are wrong."""
    sys.stdout.flush()
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        if code := os.waitstatus_to_exitcode(status):
            sys.exit(code)
        return
    _check_and_end(program, words)


def _check_and_end(program: str, words: Sequence[str]) -> NoReturn:
    code = 0
    try:
        from annals.command_line.django import Commands

        Commands([program, *words], only_check=True).execute()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        code = 0  # the command itself says what is wrong
    finally:
        sys.stdout.flush()
        os._exit(code)
