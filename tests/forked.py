"""`python -m tests.forked`: has imported Annals once, and runs each command line in a fork of it.

A line of JSON asks: the words, the environment, the seconds it may take, and constants to set. A
line of JSON answers: the exit code (None: it still ran), standard output and standard error.
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
class Done:
    """How a command ended. code: None if it was stopped after its seconds."""

    code: int | None
    out: str
    err: str


class Forking:
    """The process, as its user sees it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._asking = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked"],
            env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(
        self,
        *words: str,
        env: Mapping[str, str],
        seconds: float = 120,
        constants: Mapping[str, float | str] | None = None,
    ) -> Done:
        """Run a command with exactly this environment. constants: by dotted path."""
        question = {"words": words, "env": dict(env), "seconds": seconds,
                    "constants": dict(constants or {})}  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._asking:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return Done(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


@cache
def forking() -> Forking:
    """One for all tests of this process that need nothing else of it than a command's end."""
    made = Forking({**os.environ, "DJANGO_SETTINGS_MODULE": "annals.settings"})
    atexit.register(made.close)
    return made


def main() -> None:
    import django

    django.setup()
    for name in (
        "annals.command_line",
        "annals.management.actions.partitions",
        "annals.management.actions.trace",
        "history.management.actions.export",
        "ingest.management.actions.ledger",
        "ingest.management.actions.quarantine",
        "annals.demo.simulator",
        "annals.access.oidc.providers",
        "annals.urls",
    ):
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy every page of it
    for line in sys.stdin:
        print(json.dumps(_answer(**json.loads(line))), flush=True)


def _answer(
    words: list[str], env: dict[str, str], seconds: float, constants: dict[str, Any]
) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            _be(out, err, words, env, constants)
        code = _wait(child, seconds)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return {"code": code, "out": texts[0], "err": texts[1]}


def _wait(child: int, seconds: float) -> int | None:
    handle = os.pidfd_open(child)
    ended, _, _ = select.select([handle], [], [], seconds)
    os.close(handle)
    if not ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if ended else None


def _be(
    out: IO[str], err: IO[str], words: list[str], env: dict[str, str], constants: dict[str, Any]
) -> NoReturn:
    """Become the command."""
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
        _with_these_settings()
        from annals.command_line import main as command

        command(["annals", *words])
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


def _with_these_settings() -> None:
    """Have Django read its settings again when Annals has checked its own."""
    from annals import start

    prepare = start.prepare

    def prepare_again(*given: Any) -> None:
        prepare(*given)
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

    start.prepare = prepare_again  # type: ignore[assignment]


if __name__ == "__main__":
    main()
