"""Run commands of Annals in this process."""

from io import StringIO
from typing import NamedTuple

from django.core.management import CommandError, call_command


class CommandOutput(NamedTuple):
    """The exit code of a command and what it wrote to standard output and standard error."""

    code: int
    out: str
    err: str


def run_command(*words: str) -> CommandOutput:
    """Run the command to its end, and return its output.

    The message of a CommandError comes last in `err`.
    """
    out, err, code = StringIO(), StringIO(), 0
    try:
        call_command(*words, stdout=out, stderr=err, no_color=True)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except CommandError as error:
        code = error.returncode
        err.write(str(error))
    return CommandOutput(code, out.getvalue(), err.getvalue())


def read_output(*words: str) -> str:
    """Run the command, and return its standard output. Errors are raised."""
    out = StringIO()
    call_command(*words, stdout=out, stderr=StringIO(), no_color=True)
    return out.getvalue()
