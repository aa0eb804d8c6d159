"""How a command ends whose reader leaves, whose output has no room, and that fails by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from annals.command_line import ending
from tests.consuming import ROOT

END = """
import os, sys
from annals.command_line import ending, streams

def command():
    if len(sys.argv) > 3:
        return work(*sys.argv[3:])
    for number in range(int(sys.argv[1])):
        print("line", number)
    if len(sys.argv) > 2:
        sys.exit(int(sys.argv[2]))

def work(says, file):
    # Work that says on the way what it has done.
    if says == "stdout":
        streams.keep_on()
    out = getattr(sys, says)
    for number in range(int(sys.argv[1])):
        print("step", number, file=out)
    with open(file, "w") as done:
        done.write(" ".join(os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)))
    if sys.argv[2] != "0":
        sys.exit(int(sys.argv[2]))

ending.run(command)
"""


def shell(line: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which COMMAND is the program above."""
    command = f".venv/bin/python -c '{END}' {' '.join(words)}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("COMMAND", command)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("lines", ["3", "100000"], ids=["at its end", "in the middle"])
def test_a_reader_that_leaves_ends_it_without_a_word(lines: str) -> None:
    done = shell("COMMAND | true", lines)
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


def test_the_exit_code_of_findings_stays() -> None:
    done = shell("COMMAND | cat", "1", "2")
    assert (done.returncode, done.stdout, done.stderr) == (2, "line 0\n", "")


@pytest.mark.parametrize("code", [0, 2])
@pytest.mark.parametrize(
    "says, line",
    [
        ("stdout", "COMMAND | true"),
        ("stderr", "COMMAND 2>&1 | true"),
        ("stderr", "COMMAND 2> /dev/full"),
    ],
)
def test_work_is_not_left_halfway_when_nobody_reads(
    says: str, line: str, code: int, tmp_path: Path
) -> None:
    file = tmp_path / "done"
    done = shell(line, "100000", str(code), says, str(file))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert file.exists()


def test_work_without_room_for_its_output_is_done_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "done"
    done = shell("COMMAND > /dev/full", "100000", "0", "stdout", str(file))
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("annals: standard output or a file cannot be written: no space is left")
    assert file.exists()


@pytest.mark.parametrize("says", ["stdout", "stderr"])
def test_closed_streams_are_nowhere_and_no_other_file_gets_their_numbers(
    says: str, tmp_path: Path
) -> None:
    """librdkafka writes to descriptor 2, whatever it is: it could be a connection."""
    file = tmp_path / "done"
    assert shell("COMMAND <&- >&- 2>&-", "3", "0", says, str(file)).returncode == 0
    assert file.read_text() == "/dev/null /dev/null /dev/null"


def test_no_room_for_the_output_is_said() -> None:
    done = shell("COMMAND > /dev/full", "3")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("annals: standard output or a file cannot be written: no space is left")


def test_an_unexpected_error_is_one_line_and_its_stack_is_in_the_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def command() -> None:
        raise KeyError("surprise")

    with caplog.at_level("DEBUG"), pytest.raises(SystemExit) as end:
        ending.run(command)
    assert end.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("annals: unexpected error: KeyError: 'surprise'. With ANNALS_LOG_LEVEL")
    [record] = [each for each in caplog.records if each.name == ending.__name__]
    assert record.exc_info is not None


def test_what_it_says_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise ending.Refused("the file has\x1b]0;a title\x07 and \u202eback\nin two lines", 3)

    with pytest.raises(SystemExit) as end:
        ending.run(command)
    assert end.value.code == 3
    said = capsys.readouterr().err
    assert said == ("annals: the file has\\x1b]0;a title\\x07 and \\u202eback\nin two lines\n")


def test_ctrl_c_ends_it_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        ending.run(command)
    assert (end.value.code, capsys.readouterr().err) == (130, "")


def test_a_broken_pipe_elsewhere_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output has its reader: another connection broke."""

    def command() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(SystemExit) as end:
        ending.run(command)
    assert end.value.code == 1
    assert "Broken pipe" in capsys.readouterr().err
