"""The completion for fish."""

from __future__ import annotations

from collections.abc import Iterator

from annals.completion.tree import Node, Option

SCRIPT = """\
# Completion of the command {program} for fish, written by `{program} completion fish`.
function __{program}_at
    set -l at ""
    for each in (commandline -opc)[2..]
        switch (string trim -- "$at $each")
            case {paths}
                set at (string trim -- "$at $each")
        end
    end
    test "$at" = "$argv"
end
complete -c {program} -f
"""


def script(program: str, tree: Node) -> str:
    """program: the name of the command."""
    paths = " ".join(_quoted(each.path) for each in tree.all() if each.path)
    head = SCRIPT.format(program=program, paths=paths)
    lines = (line for each in tree.all() for line in _lines(program, each))
    return head + "\n".join(lines) + "\n"


def _lines(program: str, node: Node) -> Iterator[str]:
    start = f"complete -c {program} -n {_quoted(f'__{program}_at {node.path}'.rstrip())}"
    for child in node.children:
        yield f"{start} -f -a {_quoted(child.name)}{_described(child.text)}"
    if node.words:
        yield f"{start} -f -a {_quoted(' '.join(node.words))}"
    for option in node.options:
        yield f"{start} {_option(option)}"
    if node.path and not node.children and not node.words:
        yield f"{start} -F"


def _option(option: Option) -> str:
    names = " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    )
    value = ""
    if option.takes:
        value = f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else " -r -F"
    return f"{names}{value}{_described(option.text)}"


def _described(text: str) -> str:
    return f" -d {_quoted(' '.join(text.split()))}" if text else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
