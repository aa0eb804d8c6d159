"""The completion for zsh."""

from __future__ import annotations

from annals.completion import bash
from annals.completion.tree import Node

SCRIPT = """\
#compdef {program}
# Completion of the command {program} for zsh, written by `{program} completion zsh`.
_{program}() {{
    local previous=${{words[CURRENT-1]}} at="" each
    local -a found
    for each in "${{(@)words[2,CURRENT-1]}}"; do
        case "$at $each" in
{steps}
        esac
    done
    case "$at $previous" in
{values}
    *) case "$at" in
{found}
       esac ;;
    esac
    if (( $#found )); then _describe {program} found; else _files; fi
}}
if [ "$funcstack[1]" = _{program} ]; then _{program} "$@"; else compdef _{program} {program}; fi
"""


def script(program: str, tree: Node) -> str:
    """program: the name of the command. Goes into a file _PROGRAM of $fpath, or is sourced."""
    values = bash.values(tree).replace('words="', "found=(").replace('" ;;', ") ;;")
    lines = [f'    "{each.path}") found=({_found(each)}) ;;' for each in tree.all()]
    return SCRIPT.format(
        program=program, steps=bash.steps(tree), values=values, found="\n".join(lines)
    )


def _found(node: Node) -> str:
    """`name:what it is`, each quoted."""
    named = [
        *((child.name, child.text) for child in node.children),
        *((word, "") for word in node.words),
        *((name, option.text) for option in node.options for name in option.names),
    ]
    return " ".join(_quoted(name, text) for name, text in named)


def _quoted(name: str, text: str) -> str:
    escaped = name.replace(":", "\\:")
    line = f"{escaped}:{' '.join(text.split())}" if text else escaped
    return "'" + line.replace("'", "'\\''") + "'"
