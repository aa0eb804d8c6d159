"""The command line: help and version, refused arguments, printed errors, and the exit."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from annals import __version__
from annals.management import command_line
from history.common.text_tables import build_table, pluralize, print_table
from tests.consuming import ROOT

PROGRAMS = {"manage.py": ["manage.py"], "annals": ["-m", "annals"]}
# Wrong arguments, each with a part of its error.
REFUSED = {
    "ledger --jsn": "unrecognized arguments: --jsn",
    "consume --group": "expected one argument",
    "ledger all": "invalid choice: 'all'",
    "quarantine show -- -h": "'-h' is not a whole number",
}


def run_annals(home: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command without settings that name servers.

    A command that needs servers then starts embedded servers.
    """
    unset = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS", "ANNALS_SECRET_KEY")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, *PROGRAMS[program], *words],
        cwd=ROOT,
        env=env | {"ANNALS_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("words, text", REFUSED.items())
def test_command_with_wrong_arguments_starts_no_server(
    tmp_path: Path, words: str, text: str
) -> None:
    result = run_annals(tmp_path, "annals", *words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert text in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_diffsettings_is_refused(tmp_path: Path) -> None:
    result = run_annals(tmp_path, "annals", "diffsettings")
    assert (result.returncode, result.stdout) == (1, "")
    assert "would print passwords and keys" in result.stderr


@pytest.mark.parametrize("words", ["migrate --help", "help --all"])
def test_help_leaves_no_files(tmp_path: Path, words: str) -> None:
    """Help does not create the secret key, for example."""
    result = run_annals(tmp_path / "home", "annals", *words.split())
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("program", PROGRAMS)
def test_version_option_prints_only_the_version_of_annals(tmp_path: Path, program: str) -> None:
    result = run_annals(tmp_path, program, "--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{__version__}\n", "")


NAMES = sorted(
    file.stem
    for app in command_line.APPS
    for file in (ROOT / app / "management" / "commands").glob("[!_]*.py")
)


def test_overview_lists_each_command_once_and_fits_the_terminal() -> None:
    listed = [name for group in command_line.COMMAND_GROUPS.values() for name in group]
    assert sorted(listed) == sorted({*NAMES, "check", "runserver"})
    assert max(map(len, command_line.format_overview("manage.py").splitlines())) <= 80


END = """
from annals.management import command_line

def command():
    for number in range(LINES):
        print("line", number)

command_line.run_command(command)
"""


@pytest.mark.parametrize("lines", ["3", "100000"], ids=["at its end", "in the middle"])
def test_command_ends_silently_when_the_program_that_reads_its_output_ends(lines: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as output:
        result = subprocess.run(
            [sys.executable, "-c", END.replace("LINES", lines)],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize(
    "error, code, text",
    [
        (KeyError("surprise"), 1, "annals: unexpected error: KeyError: 'surprise'. With ANNALS_LO"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device"), 1, "annals: "),
    ],
)
def test_error_is_printed_as_one_line(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def raise_error() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        command_line.run_command(raise_error)
    assert end.value.code == code
    printed = capsys.readouterr().err
    assert printed.startswith(text)
    assert printed.count("\n") == (1 if text else 0)


# A program in which an answer of Kafka's client arrives after the end of Python, but before the end
# of the process.
LATE_ANSWER = """
import builtins, ctypes, gc
import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from annals.management import command_line

class Cycle: ...

def consume(*_):
    keep = Cycle()
    keep.itself, keep.client = keep, AdminClient({"bootstrap.servers": "127.0.0.1:1"})
    keep.client.describe_topics(ck.TopicCollection(["t"]), request_timeout=0.3)
    gc.freeze()
    raise SystemExit(3)

libc = ctypes.CDLL(None)
sleep = ctypes.cast(libc.usleep, ctypes.c_void_p)
libc.__cxa_atexit(sleep, ctypes.c_void_p(900_000), None)
command_line._dispatch_command = consume
command_line.main(["annals", "consume"])
"""


def test_kafka_answer_that_arrives_during_exit_does_not_crash_consumer() -> None:
    result = subprocess.run(
        [sys.executable, "-c", LATE_ANSWER], cwd=ROOT, capture_output=True, timeout=300
    )
    assert result.returncode == 3, result.stderr


# Modules that only Django's start, the pages, logins and archives need.
HEAVY = (
    "confluent_kafka cryptography django.db.models history.admin.pages history.api"
    " history.policy.masking history.models history.timeline jwt prometheus_client psycopg pyarrow"
    " requests rich"
)
QUICK = " ".join(name for name in NAMES if name not in command_line.EXTENDS_DJANGO)
# A program that prints all help texts in one process. It names the first command whose help imports
# a heavy module.
HELPS = """
import runpy, sys
heavy, quick = (text.split() for text in sys.argv[1:])
for command in quick:
    sys.argv = ["manage.py", command, "--help"]
    try:
        runpy.run_path("manage.py", run_name="__main__")
    except SystemExit:
        pass
    if found := {*heavy} & sys.modules.keys():
        sys.exit(f"{command}: {found}")
"""


def test_help_does_not_start_django() -> None:
    result = subprocess.run(
        [sys.executable, "-c", HELPS, HEAVY, QUICK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (result.returncode, result.stderr) == (0, "")
    for command in QUICK.split():
        assert f"usage: manage.py {command}" in result.stdout


@pytest.mark.parametrize(
    "values",
    [
        "capacity --rps -1",
        "capacity --rps 200 --days 0",
        "capacity --rps nan",
        "compare-old --sample -3",
        "migrate --statement-timeout inf",
        "migrate --statement-timeout -1",
        "trace --version 1.0",
        "trace --version x",
    ],
)
def test_option_with_a_number_out_of_range_is_refused(values: str) -> None:
    name, *arguments = values.split()
    option, text = arguments[-2:]
    with pytest.raises(CommandError, match=f"argument {option}: '{text}' is not a .*number from"):
        call_command(name, *arguments)


def test_column_of_printed_table_is_as_wide_as_its_widest_cell() -> None:
    table, out = (
        build_table("topic", "partition", "read", "state", right=("partition", "read")),
        io.StringIO(),
    )
    table.add_row("first", "0", "12", "[red] " * 20)
    table.add_row("b", "11", "1,234", "")
    print_table(out, table)
    assert out.getvalue().splitlines() == [
        "topic  partition   read  state",
        f"first          0     12  {'[red] ' * 20}".rstrip(),
        "b             11  1,234",
    ]


def test_pluralize_makes_noun_agree_with_number() -> None:
    expected = ["0 days", "1 day", "2 days", "1,234 days"]
    assert [pluralize(n, "day") for n in (0, 1, 2, 1234)] == expected
    assert [pluralize(n, "it is", "they are") for n in (1, 2)] == ["1 it is", "2 they are"]
