"""The completion for bash, and the patterns of it that zsh has as well."""

from __future__ import annotations

from annals.completion.tree import Node

SCRIPT = """\
# Completion of the command {program} for bash, written by `{program} completion bash`.
_{program}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local at="" each words=""
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$at $each" in
{steps}
        esac
    done
    case "$at $previous" in
{values}
    *) case "$at" in
{words}
       esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _{program} {program}
"""


def script(program: str, tree: Node) -> str:
    """program: the name of the command."""
    lines = [_line(f'"{each.path}"', _words(each)) for each in tree.all()]
    return SCRIPT.format(
        program=program, steps=steps(tree), values=values(tree), words="\n".join(lines)
    )


def steps(tree: Node) -> str:
    """The patterns of `case` for the words that lead to a command or an action."""
    paths = [each.path for each in tree.all() if each.path]
    patterns = [f'"{path}"' if " " in path else f'" {path}"' for path in paths]
    return f"        {'|'.join(patterns)}) at=${{at:+$at }}$each ;;"


def values(tree: Node) -> str:
    """The cases of options whose value follows; free values complete as files."""
    lines = []
    for each in tree.all():
        by_choices: dict[tuple[str, ...], list[str]] = {}
        for option in each.options:
            if option.takes:
                names = [f'"{each.path} {name}"' for name in option.names]
                by_choices.setdefault(option.choices, []).extend(names)
        lines += [_line("|".join(names), " ".join(given)) for given, names in by_choices.items()]
    return "\n".join(lines)


def _words(node: Node) -> str:
    names = [name for option in node.options for name in option.names]
    return " ".join([*(child.name for child in node.children), *node.words, *names])


def _line(pattern: str, words: str) -> str:
    return f'    {pattern}) words="{words}" ;;'
