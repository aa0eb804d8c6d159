"""What `annals` answers at once, and which words it refuses before a server is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from annals import __version__, own_commands
from annals.command_line import overview
from tests.consuming import ROOT

PROGRAMS = {"manage.py": ["manage.py"], "annals": ["-m", "annals"]}
# Words, and a part of the sentence about them.
REFUSED = {
    "consum": "there is no command consum. Did you mean consume?",
    "zzzz": "there is no command zzzz. `{0} help` lists what there is.",
    "--verson": "there is no option --verson. Did you mean --version?",
    "ledger --jsn": "ledger: there is no option --jsn. Did you mean --json?",
    "consume --version": "there is no option --version. `{0} --version` prints the version.",
    "consume --until-idle soon": "consume: --until-idle: 'soon' is not a number from 0 to",
    "capacity --rps many": "capacity: --rps: 'many' is not a number",
    "consume --group": "consume: --group needs a value.",
    "ledger all": "ledger: COMMAND cannot be 'all', only acknowledge,",
    "trace all": "trace: 'all' is one word too many. `{0} trace --help` says which it takes.",
    "partitions": "partitions: ACTION is missing.",
    "partitions lst": "ACTION cannot be 'lst', only list, plan,",
    "partitions seal 2026-02-30": "day: '2026-02-30' is not a day as 2026-12-31.",
    "quarantine lits --json": "Did you mean list?",
    "migrate --fke": "migrate: there is no option --fke. Did you mean --fake?",
    "runserver --noreloaf": "Did you mean --noreload?",
    "diffsettings": "would print passwords and keys",
}


def run(home: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it with no server named, so that the embedded ones would start in home."""
    unset = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
    unset = (*unset, "ANNALS_SECRET_KEY")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, *PROGRAMS[program], *words],
        cwd=ROOT, env=env | {"ANNALS_HOME": str(home)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def started(home: Path) -> bool:
    """Whether a server was started, or prepared, there."""
    return any((home / name).exists() for name in ("postgres", "broker"))


@pytest.mark.parametrize("words, text", REFUSED.items())
def test_wrong_words_end_with_a_sentence_and_start_nothing(
    tmp_path: Path, words: str, text: str
) -> None:
    done = run(tmp_path, "annals", *words.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("annals")
    assert text.format("annals") in done.stderr
    assert done.stderr.count("\n") == 1
    assert not started(tmp_path)


@pytest.mark.parametrize("words", ["contract asyncapi", "migrate --help", "help --all"])
def test_what_only_prints_leaves_nothing(tmp_path: Path, words: str) -> None:
    """Such as a key in each folder in which somebody opens a shell."""
    done = run(tmp_path / "home", "annals", *words.split())
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "home").exists()


def test_the_same_under_the_name_of_django(tmp_path: Path) -> None:
    done = run(tmp_path, "manage.py", "ledger", "--jsn")
    assert done.returncode == 2
    assert done.stderr == "manage.py ledger: there is no option --jsn. Did you mean --json?\n"
    assert not started(tmp_path)


def test_with_a_database_the_sentences_are_the_same() -> None:
    env = {**os.environ, "DATABASE_URL": "postgresql://a:b@127.0.0.1:1/x"}
    done = subprocess.run(
        [sys.executable, "-m", "annals", "migrate", "--fke"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "annals migrate: there is no option --fke. Did you mean --fake?\n"


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_is_our_own_and_alone(tmp_path: Path, program: str, word: str) -> None:
    done = run(tmp_path, program, word)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_help_lists_our_commands(tmp_path: Path, program: str, words: tuple[str, ...]) -> None:
    done = run(tmp_path, program, *words)
    assert done.returncode == 0
    assert done.stdout == overview.text(program) + "\n"
    assert not started(tmp_path)


def test_the_list_has_every_command_of_ours_once_and_fits_a_terminal() -> None:
    listed = [name for group in overview.GROUPS.values() for name in group]
    assert sorted(listed) == sorted({*own_commands.names(), "runserver"})
    assert max(map(len, overview.text("manage.py").splitlines())) <= 80


def test_help_of_all_lists_djangos_commands_too(tmp_path: Path) -> None:
    done = run(tmp_path, "annals", "help", "--all")
    assert done.returncode == 0
    listed = {line.strip() for line in done.stdout.splitlines()}
    assert {"sqlmigrate", "createsuperuser", *own_commands.names()} <= listed
    assert not started(tmp_path)


def test_help_of_a_command_in_both_orders(tmp_path: Path) -> None:
    first, second = (
        run(tmp_path, "annals", *words) for words in (("help", "ledger"), ("ledger", "--help"))
    )
    assert first.stdout == second.stdout
    assert first.stdout.startswith("usage: annals ledger")
