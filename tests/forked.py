"""`python -m tests.forked`: imports Annals once, and runs each command line in a fork.

Each request is a line of JSON: the words of the command, the environment, the time limit in
seconds, and new values for constants of modules. Each answer is a line of JSON: the exit code (null
if the command was stopped at its time limit), standard output and standard error.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, NoReturn


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int | None  # None if the command was stopped at its time limit
    out: str
    err: str


class CommandForker:
    """Runs commands of manage.py in forks of a process that has already imported Annals.

    A CommandForker starts this process and sends it the command lines.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._asking = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked"],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run_command(
        self,
        *arguments: str,
        env: Mapping[str, str],
        seconds: float = 120,
        constants: Mapping[str, float | str] | None = None,
    ) -> CommandResult:
        """Run a command with exactly this environment.

        Args:
            constants: New values for constants of modules, by the dotted path of the constant.
        """
        request = {
            "words": arguments,
            "env": dict(env),
            "seconds": seconds,
            "constants": dict(constants or {}),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._asking:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return CommandResult(**json.loads(self._process.stdout.readline()))

    def close_process(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()


@cache
def get_forker() -> CommandForker:
    """Return the one forking process that all tests of this process share."""
    forker = CommandForker({**os.environ, "DJANGO_SETTINGS_MODULE": "annals.settings"})
    atexit.register(forker.close_process)
    return forker


def main() -> None:
    import django

    django.setup()
    for name in (
        "annals.management.command_line",
        "annals.management.partitions.listing",
        "annals.management.partitions.maintaining",
        "annals.management.partitions.one_day",
        "annals.management.partitions.verifying",
        "history.completeness.trace",
        "history.management.progress",
        "history.retention.export.run",
        "ingest.completeness.losses",
        "ingest.kafka.retention",
        "ingest.management.argument_checks",
        "ingest.management.preconditions",
        "ingest.quarantine.requests",
        "annals.demo.simulator",
        "annals.access.oidc.providers",
        "annals.urls",
    ):
        importlib.import_module(name)
    gc.freeze()  # otherwise a garbage collection in a fork would copy all pages of this memory
    for line in sys.stdin:
        print(json.dumps(_run_in_fork(**json.loads(line))), flush=True)


def _run_in_fork(
    words: list[str], env: dict[str, str], seconds: float, constants: dict[str, Any]
) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            _become_command(out, err, words, env, constants)
        code = _wait_for_child(child, seconds)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return {"code": code, "out": texts[0], "err": texts[1]}


def _wait_for_child(child: int, seconds: float) -> int | None:
    handle = os.pidfd_open(child)
    ended, _, _ = select.select([handle], [], [], seconds)
    os.close(handle)
    if not ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if ended else None


def _become_command(
    out: IO[str], err: IO[str], arguments: list[str], env: dict[str, str], constants: dict[str, Any]
) -> NoReturn:
    """Turn this forked process into the command."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for path, value in constants.items():
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    code = 1
    try:
        _patch_prepare_environment()
        from annals.management.command_line import main as command

        command(["annals", *arguments])
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        else:
            code = int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _patch_prepare_environment() -> None:
    """Replace start.prepare_environment() by a function that also reloads the settings of Django.

    The function calls the original one first, which checks the settings.
    """
    from annals.web import start

    prepare = start.prepare_environment

    def prepare_again(*arguments: Any) -> None:
        prepare(*arguments)
        from django.conf import settings
        from django.db import connections

        import annals.settings

        module = importlib.reload(annals.settings)
        for name in filter(str.isupper, dir(module)):
            setattr(settings, name, getattr(module, name))
        connections.__dict__.pop("settings", None)
        connections._settings = None  # type: ignore[attr-defined]
        with suppress(AttributeError):
            del connections["default"]

    start.prepare_environment = prepare_again  # type: ignore[assignment]


if __name__ == "__main__":
    main()
