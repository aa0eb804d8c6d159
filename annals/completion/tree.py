"""The commands, their actions and options, as parsers have them."""

from __future__ import annotations

from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Options of every Django command that are rarely wanted.
RARE = frozenset(
    {
        *("--settings", "--pythonpath", "--traceback", "--no-color", "--force-color"),
        *("--skip-checks", "--verbosity", "-v"),
    }
)


@dataclass(frozen=True, slots=True)
class Option:
    """names: `--json`, or several. takes: whether a value follows it. choices: the values that it
    may have; none where every value may be right."""

    names: tuple[str, ...]
    text: str
    takes: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A command or an action of one. path: its words, joined by spaces; empty for the program.
    words: choices of its arguments."""

    path: str
    text: str
    options: tuple[Option, ...] = ()
    words: tuple[str, ...] = ()
    children: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        return self.path.rpartition(" ")[2]

    def all(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.all()


def program(parsers: Mapping[str, tuple[ArgumentParser, str]]) -> Node:
    """The tree of commands. parsers: by name, each with the line that describes it."""
    commands = tuple(node(parser, name, text) for name, (parser, text) in parsers.items())
    own = (Option(("--help",), "list the commands"), Option(("--version",), "print the version"))
    helped = Node("help", "the commands, or the options of one", words=tuple(parsers))
    return Node("", "", own, children=(*commands, helped))


def node(parser: ArgumentParser, path: str, text: str) -> Node:
    """A parser with the parsers below it."""
    options: list[Option] = []
    children: list[Node] = []
    words: list[str] = []
    for action in parser._actions:  # argparse has no public access
        if isinstance(action, _SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            children += [
                node(sub, f"{path} {name}", texts.get(name, ""))
                for name, sub in action.choices.items()
            ]
        elif action.option_strings:
            if not RARE & set(action.option_strings) and not _version_of_django(action):
                options.append(_option(action, parser))
        else:
            words += map(str, action.choices or ())
    return Node(path, text, tuple(options), tuple(words), tuple(children))


def _option(action: Action, parser: ArgumentParser) -> Option:
    text = parser.formatter_class(prog="")._expand_help(action) if action.help else ""
    choices = tuple(map(str, action.choices or ()))
    return Option(tuple(action.option_strings), text, action.nargs != 0, choices)


def _version_of_django(action: Action) -> bool:
    return "--version" in action.option_strings and action.nargs == 0
