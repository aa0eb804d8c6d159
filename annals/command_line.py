"""The command `annals`."""

import gc
import logging
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from annals import __version__

logger = logging.getLogger(__name__)

ROOT: Final = Path(__file__).resolve().parent.parent
# Python runs this file as the command `annals`, from any folder.
PROGRAM: Final = ROOT / "annals" / "__main__.py"
APPS: Final = ("annals", "annals/access", "history", "ingest")
# They extend commands of Django, whose arguments depend on the settings.
OF_DJANGO: Final = frozenset({"makemigrations", "migrate"})
# Python's 700 would cost a tenth of a command's start, where nothing is garbage, and later find
# nothing in a consumer, whose messages form no reference cycles.
GARBAGE_COLLECTION_OBJECTS: Final = 50_000
INTERRUPTED: Final = 130
READER_LEFT: Final = 141  # as a program that SIGPIPE ends
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run": {
        "migrate": "create the tables, or bring them to this release",
        "consume": "read the topics and store every version",
        "runserver": "serve screens and API; in production gunicorn does",
        "embedded": "status, start or stop of the servers that are included",
        "simulate": "produce the messages of realistic applications",
    },
    "Look": {
        "ledger": "what was read and stored of each topic; do the sums add up?",
        "quarantine": "list, show, retry and discard bad messages",
        "trace": "what became of one version or message",
        "gaps": "versions that never arrived",
        "capacity": "the disk space that the history needs",
        "compare-old": "compare applications with the service that is replaced",
    },
    "Keep": {
        "partitions": "create, drop, archive, seal and verify the days",
        "export": "write whole days to files",
        "search": "the table of business keys",
    },
    "Set up": {
        "distribute": "the tables of versions onto the nodes of a Citus cluster",
        "grants": "the database rights and logins of the web and the consumer",
        "people": "import full names for logins",
        "labels": "load labels of fields, and which are masked",
        "breakglass": "a local superuser for the day without an identity provider",
        "check": "look for mistakes: --deploy, --database default",
    },
    "Develop": {"makemigrations": "write migrations of changed tables"},
}


def main(given: Sequence[str] | None = None) -> None:
    """given: the command line with the name of the program; default: that of this process."""
    gc.set_threshold(GARBAGE_COLLECTION_OBJECTS)
    argv = list(sys.argv if given is None else given)
    program = Path(argv[0]).name.replace("__main__.py", "annals")
    code: object = None
    try:
        run(lambda: _command(program, argv[1:]))
    except SystemExit as ended:
        code = ended.code
        raise
    finally:
        if argv[1:2] == ["consume"]:
            _end_consumer(code)


def _end_consumer(code: object) -> None:
    """End the process as sys.exit does, but at once: Kafka's clients may still wait for brokers,
    and an answer that comes when Python has ended, and the process has not, would be a SIGSEGV."""
    if "confluent_kafka" not in sys.modules:
        return
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def run(command: Callable[[], object]) -> None:
    """Run a command. What ends it is printed as a sentence; the stack goes to the log, at DEBUG. A
    reader of standard output that leaves, such as `head`, ends it without a word."""
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Python would report it again at its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_LEFT)
    except Exception as error:
        from history.base.plain_text import one_line
        from history.failure.sentences import known, sentence

        logger.debug("the command failed", exc_info=error)
        text = known(error) or f"{sentence(error)}. With ANNALS_LOG_LEVEL=DEBUG the log says where"
        # There may be words of messages and of files in it, and this is a terminal.
        shown = one_line(text, "\n\t").rstrip(".")
        sys.stderr.write(f"annals: {shown}.\n")
        sys.exit(1)


def _command(program: str, words: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    match words:
        case ["--version"] | ["version"]:
            print(__version__)
            return
        case [] | ["help"] | ["-h" | "--help"]:
            print(overview(program))
            return
        case ["diffsettings", *_]:
            sys.exit("annals: diffsettings would print passwords and keys; see docs/settings.md.")
        case ["help", "--all"]:
            words = ["help"]
        case ["help", name] if not name.startswith("-"):
            words = [name, "--help"]
    # Before a server is started for it: argparse ends the process if it asks for help or is wrong.
    if (checked := parser(program, words[0])) is not None:
        checked.parse_args(words[1:])
    from annals.start import prepare

    prepare(words)
    from django.core.management import execute_from_command_line

    execute_from_command_line([program, *words])


def parser(program: str, name: str) -> ArgumentParser | None:
    """The parser of one of our commands, without Django's start, which takes most of the time. None
    if it is none of ours or extends one of Django's."""
    folder = next((app for app in APPS if _file(app, name).is_file()), None)
    if folder is None or name in OF_DJANGO or not name.replace("-", "").isalpha():
        return None
    module = import_module(f"{folder.replace('/', '.')}.management.commands.{name}")
    command = module.Command()
    command._called_from_command_line = True
    made: ArgumentParser = command.create_parser(program, name)
    return made


def overview(program: str) -> str:
    """What `annals help` prints. program: how it was called."""
    lines = [
        f"usage: {program} COMMAND [OPTIONS]",
        "",
        "Annals keeps the history of loan applications: who changed what, when.",
    ]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<14} {what}" for name, what in commands.items()]
    lines += [
        "",
        f"`{program} COMMAND --help` has the options of a command.",
        f"`{program} help --all` has the commands of Django as well.",
    ]
    return "\n".join(lines)


def _file(app: str, name: str) -> Path:
    return ROOT / app / "management" / "commands" / f"{name}.py"
