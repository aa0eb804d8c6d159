"""A wrong input gets one sentence that names it, and an exit code: no traceback, no password."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from tests.db.wrong_inputs import FILES, INPUTS, SECRET, WrongInput
from tests.forked import CommandForker, CommandResult

# Texts that only programmers understand.
CODE = re.compile(r"Traceback|Errno|`\w+`, got|matching regex|NoneType")
KEY = "k" * 40
LONGEST = 300
NO_RIGHTS = f"wrong_norights_{os.getpid()}"


class InputValues:
    """The values for placeholders such as {port} in the texts of wrong_inputs.py.

    An instance is callable. It takes a text, and returns the text with values in place of the
    placeholders.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __call__(self, text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: self._names[match[1]], text)


@pytest.fixture
def urls(transactional_db: None) -> Iterator[dict[str, str]]:
    """Yield the URLs of the test's database, of one without tables, and of a login without
    rights."""
    database_url = os.environ["DATABASE_URL"]
    server = database_url.rpartition("/")[0]
    parts = conninfo_to_dict(database_url)
    address, name = f"{parts['host']}:{parts['port']}", connection.settings_dict["NAME"]
    with psycopg.connect(database_url, autocommit=True) as plain:
        plain.execute(f"CREATE ROLE {NO_RIGHTS} LOGIN PASSWORD '{SECRET}'")
        yield {
            "owner": f"{server}/{name}",
            "empty_database": f"{server}/postgres",
            "no_rights": f"postgresql://{NO_RIGHTS}:{SECRET}@{address}/{name}",
            "user": str(parts["user"]),
            "port": str(parts["port"]),
        }
        plain.execute(f"DROP ROLE {NO_RIGHTS}")


@pytest.fixture
def env(urls: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "ANNALS_HOME": str(tmp_path / "home"),
        "ANNALS_SECRET_KEY": KEY,
        "DATABASE_URL": urls["owner"],
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }


@pytest.fixture
def forking(env: dict[str, str]) -> Iterator[CommandForker]:
    forker = CommandForker({**env, "DJANGO_SETTINGS_MODULE": "annals.settings"})
    yield forker
    forker.close_process()


@pytest.fixture
def input_values(urls: dict[str, str], tmp_path: Path) -> Iterator[InputValues]:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    with ExitStack() as stack:
        ports = {}
        for name in ("busy", "silent"):
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports[name] = str(listening.getsockname()[1])
        disks = {}
        for name, options in (("read_only", "ro"), ("full", "size=4k")):
            disks[name] = str(tmp_path / name)
            (tmp_path / name).mkdir()
            mount(stack, tmp_path / name, options)
        (tmp_path / "full" / "rest").write_bytes(bytes(4096))
        yield InputValues({**urls, **ports, **disks, "dir": str(tmp_path)})


def mount(stack: ExitStack, folder: Path, options: str) -> None:
    """Mount a small disk at the folder until the end of the test. This needs root, as in CI."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    stack.callback(subprocess.run, ["umount", folder], check=True)


def run_with_wrong_input(
    forking: CommandForker,
    env: Mapping[str, str],
    input_values: InputValues,
    wrong_input: WrongInput,
) -> CommandResult:
    variables = {**env, **wrong_input.env}
    return forking.run_command(
        *map(input_values, wrong_input.words),
        env={name: input_values(value) for name, value in variables.items() if value},
        constants=wrong_input.constants,
    )


def find_faults(
    wrong_input: WrongInput,
    result: CommandResult,
    input_values: InputValues,
    secrets: tuple[str, ...],
) -> Iterator[str]:
    """Yield what is wrong with the error that the command printed."""
    if result.code != wrong_input.code:
        yield f"exit code {result.code}, not {wrong_input.code}"
    # Argparse prints the error after a usage text.
    of_words = wrong_input.code == 2 and "usage: " in result.err
    if result.out or (len(result.err.splitlines()) != 1 and not of_words):
        yield "not one line on standard error alone"
    yield from (
        f"does not say {text}"
        for text in map(input_values, wrong_input.texts)
        if text not in result.err
    )
    if CODE.search(result.err):
        yield "speaks to programmers"
    if not of_words and len(result.err) > LONGEST + len(input_values("{dir}")):
        yield "too long to be read"
    if any(secret in result.err for secret in secrets):
        yield "shows a secret"


@pytest.mark.plain_only("its commands connect to the embedded server with a password")
def test_wrong_inputs_are_refused_in_one_sentence(
    forking: CommandForker, env: dict[str, str], input_values: InputValues
) -> None:
    """One test checks all inputs. With one test for each input, every pytest process would start a
    process of its own that imports Annals."""
    password = str(conninfo_to_dict(env["DATABASE_URL"])["password"])
    problems = {}
    for wrong_input in INPUTS:
        result = run_with_wrong_input(forking, env, input_values, wrong_input)
        if wrong := list(find_faults(wrong_input, result, input_values, (SECRET, KEY, password))):
            problems[wrong_input.title] = [*wrong, result.err]
    assert problems == {}, "\n".join(f"{title}: {wrong}" for title, wrong in problems.items())
    assert len({wrong_input.title for wrong_input in INPUTS}) == len(INPUTS) >= 70
