"""Commands of Annals, run in this process."""

from io import StringIO
from typing import NamedTuple

from django.core.management import CommandError, call_command


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def run_command(*words: str) -> Ran:
    """Runs it to its end, whatever that is. The sentence of an error is the last of err."""
    out, err, code = StringIO(), StringIO(), 0
    try:
        call_command(*words, stdout=out, stderr=err, no_color=True)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except CommandError as error:
        code = error.returncode
        err.write(str(error))
    return Ran(code, out.getvalue(), err.getvalue())


def read_output(*words: str) -> str:
    """What it prints. An error is raised."""
    out = StringIO()
    call_command(*words, stdout=out, stderr=StringIO(), no_color=True)
    return out.getvalue()
