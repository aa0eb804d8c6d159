"""What `annals` answers at once, which words it refuses before a server is started, how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from annals import __version__, command_line
from tests.consuming import ROOT

PROGRAMS = {"manage.py": ["manage.py"], "annals": ["-m", "annals"]}
# Words, and a part of what is said about them.
REFUSED = {
    "ledger --jsn": "unrecognized arguments: --jsn",
    "consume --until-idle soon": "'soon' is not a number from 0 to",
    "capacity --rps many": "'many' is not a number",
    "consume --group": "expected one argument",
    "ledger all": "invalid choice: 'all'",
    "partitions": "required: ACTION",
    "quarantine show -- -h": "'-h' is not a whole number",
}


def run(home: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it with no server named, so that the embedded ones would start in home."""
    unset = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS", "ANNALS_SECRET_KEY")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, *PROGRAMS[program], *words],
        cwd=ROOT, env=env | {"ANNALS_HOME": str(home)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("words, text", REFUSED.items())
def test_wrong_words_are_refused_and_start_nothing(tmp_path: Path, words: str, text: str) -> None:
    done = run(tmp_path, "annals", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_prints_passwords_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "annals", "diffsettings")
    assert (done.returncode, done.stdout) == (1, "")
    assert "would print passwords and keys" in done.stderr


@pytest.mark.parametrize("words", ["contract asyncapi", "migrate --help", "help --all"])
def test_what_only_prints_leaves_nothing(tmp_path: Path, words: str) -> None:
    """Such as a key in the folder in which somebody asks for help."""
    done = run(tmp_path / "home", "annals", *words.split())
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_is_our_own_and_alone(tmp_path: Path, program: str, word: str) -> None:
    done = run(tmp_path, program, word)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_help_lists_our_commands(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, "manage.py", *words)
    assert done.returncode == 0
    assert done.stdout == command_line.overview("manage.py") + "\n"


def test_the_list_has_every_command_of_ours_once_and_fits_a_terminal() -> None:
    listed = [name for group in command_line.GROUPS.values() for name in group]
    assert sorted(listed) == sorted({*command_line.names(), "runserver"})
    assert max(map(len, command_line.overview("manage.py").splitlines())) <= 80


def test_help_of_a_command_in_both_orders(tmp_path: Path) -> None:
    first, second = (
        run(tmp_path, "annals", *words) for words in (("help", "ledger"), ("ledger", "--help"))
    )
    assert first.stdout == second.stdout
    assert first.stdout.startswith("usage: annals ledger")


END = """
from annals import command_line

def command():
    for number in range(LINES):
        print("line", number)

command_line.run(command)
"""


@pytest.mark.parametrize("lines", ["3", "100000"], ids=["at its end", "in the middle"])
def test_a_reader_that_leaves_ends_it_without_a_word(lines: str) -> None:
    line = f".venv/bin/python -c '{END.replace('LINES', lines)}' | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


@pytest.mark.parametrize(
    "error, code, said",
    [
        (KeyError("surprise"), 1, "annals: unexpected error: KeyError: 'surprise'. With ANNALS_LO"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device"), 1, "annals: "),
    ],
)
def test_an_error_is_one_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        command_line.run(command)
    assert end.value.code == code
    printed = capsys.readouterr().err
    assert printed.startswith(said)
    assert printed.count("\n") == (1 if said else 0)
