"""`annals completion` in the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.core.management import call_command

from history.entities import ENTITIES
from tests import need
from tests.consuming import ROOT

# What is typed, and some of what the shell then offers.
TYPED = {
    "annals cons": {"consume"},
    "annals partitions ve": {"verify"},
    "annals partitions verify --arch": {"--archive"},
    "annals quarantine re": {"retry", "resume"},
    "annals export --entity p": {each.name for each in ENTITIES if each.name[0] == "p"},
    "annals embedded sta": {"start", "status"},
    "annals consume --group g --unt": {"--until-idle"},
    "annals help led": {"ledger"},
    "annals --ver": {"--version"},
}
# By its path; bash looks at the end of it before it calls the function.
BY_PATH = {"./scripts/annals led": {"ledger"}}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell, called annals.SHELL."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        with (folder / f"annals.{shell}").open("w") as script:
            call_command("completion", shell, stdout=script)
    return folder


def test_it_starts_no_server_and_prints_the_script(scripts: Path, tmp_path: Path) -> None:
    unset = {name: text for name, text in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "annals", "completion", "bash"],
        cwd=ROOT, env=unset | {"ANNALS_HOME": str(tmp_path)}, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == (scripts / "annals.bash").read_text()
    assert not (tmp_path / "postgres").exists()


def said(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split("\n")


def test_bash(scripts: Path) -> None:
    lines = [f"source {scripts}/annals.bash"]
    for typed in TYPED:
        lines.append(f"COMP_WORDS=({typed}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))")
        lines.append('COMPREPLY=(); _annals; echo "${COMPREPLY[*]}"')
    answers = said("bash", "--norc", "-c", "\n".join(lines))
    assert dict(zip(TYPED, (set(each.split()) for each in answers), strict=False)) == TYPED


def test_fish(scripts: Path) -> None:
    need.program("fish")
    for typed, expected in (TYPED | BY_PATH).items():
        code = f"source {scripts}/annals.fish; complete -C {shlex.quote(typed)}"
        offered = {line.partition("\t")[0] for line in said("fish", "-N", "-c", code) if line}
        assert offered == expected, typed


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_in_a_terminal(shell: str, scripts: Path, tmp_path: Path) -> None:
    """zsh completes only there."""
    need.program(shell)
    (tmp_path / ".zshrc").write_text(
        "autoload -U compinit; compinit -u -d dump; unsetopt auto_menu; setopt list_ambiguous\n"
        f"PS1='> '; source {scripts}/annals.zsh; print ready\n"
    )
    (tmp_path / ".bashrc").write_text(f"PS1='> '; source {scripts}/annals.bash; echo ready\n")
    words = {"bash": ["bash", "--rcfile", ".bashrc", "-i"], "zsh": ["zsh", "-i"]}[shell]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe(shell, words, {**os.environ, "ZDOTDIR": str(tmp_path), "TERM": "dumb"})  # noqa: S606
    try:
        until(terminal, "ready")
        for typed, expected in (TYPED | BY_PATH).items():
            os.write(terminal, f"{typed}\t\t".encode())
            shown = ""
            for name in expected:
                shown += until(terminal, name, shown)
            os.write(terminal, b"\x15\n")  # takes the line away
            until(terminal, "> ")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def until(terminal: int, text: str, shown: str = "") -> str:
    """What the terminal shows until it shows the text, at most for 20 seconds."""
    more = ""
    end = time.monotonic() + 20
    while text not in shown + more:
        assert time.monotonic() < end, f"{text!r} is not in {shown + more!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            more += os.read(terminal, 65536).decode(errors="replace")
    return more
