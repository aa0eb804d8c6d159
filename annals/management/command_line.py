"""The command `annals`: runs one of its commands, and reports errors."""

import gc
import logging
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from annals import __version__

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger(__name__)

ROOT: Final = Path(__file__).resolve().parents[2]
# Python runs this file as the command `annals`, from any folder.
PROGRAM: Final = ROOT / "annals" / "__main__.py"
APPS: Final = ("annals", "annals/access", "history", "ingest")
# These commands extend commands of Django, whose arguments depend on the settings.
EXTENDS_DJANGO: Final = frozenset({"makemigrations", "migrate"})
# With Python's default of 700, a tenth of a command's start would go into collecting garbage. A
# consumer needs few collections, too: its messages do not form reference cycles.
GARBAGE_COLLECTION_OBJECTS: Final = 50_000
WORKER_REFUSAL: Final = "annals.refuse_worker"
EXIT_INTERRUPTED: Final = 130
EXIT_READER_LEFT: Final = 141  # like a program that SIGPIPE ends
COMMAND_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
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
        "changes": "what a person or a service changed, in any document",
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


def main(command_line: Sequence[str] | None = None) -> None:
    """Run a command of Annals.

    Args:
        command_line: The program, the command and its options. Default: those of this process.
    """
    gc.set_threshold(GARBAGE_COLLECTION_OBJECTS)
    argv = list(sys.argv if command_line is None else command_line)
    program = Path(argv[0]).name.replace("__main__.py", "annals")
    code: object = None
    try:
        run_command(lambda: _dispatch_command(program, argv[1:]))
    except SystemExit as ended:
        code = ended.code
        raise
    finally:
        if argv[1:2] == ["consume"]:
            _end_consumer(code)


def _end_consumer(code: object) -> None:
    """End the process at once, with the exit code that sys.exit would give.

    Threads of Kafka's clients may still wait for brokers. If an answer arrived after Python has
    shut down and before the process ends, it would cause a SIGSEGV.
    """
    if "confluent_kafka" not in sys.modules:
        return
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def run_command(command: Callable[[], object]) -> None:
    """Run a command. If an error ends it, print the error as a sentence.

    At the level DEBUG the log has the traceback of the error. If the program that reads the
    standard output ends first, as `head` does, the command ends silently.
    """
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Python would report the error again when it flushes the standard output at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_READER_LEFT)
    except Exception as error:
        from history.common.error_sentences import explain_error, explain_known_error
        from history.common.plain_text import to_one_line

        logger.debug("the command failed", exc_info=error)
        text = (
            explain_known_error(error)
            or f"{explain_error(error)}. With ANNALS_LOG_LEVEL=DEBUG the log says where"
        )
        # The text may have words of messages and files, which must not control the terminal.
        message = to_one_line(text, "\n\t").rstrip(".")
        sys.stderr.write(f"annals: {message}.\n")
        sys.exit(1)


def _dispatch_command(program: str, words: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    match words:
        case ["--version"] | ["version"]:
            print(__version__)
            return
        case [] | ["help"] | ["-h" | "--help"]:
            print(format_overview(program))
            return
        case ["diffsettings", *_]:
            sys.exit("annals: diffsettings would print passwords and keys; see docs/settings.md.")
        case ["help", "--all"]:
            words = ["help"]
        case ["help", name] if not name.startswith("-"):
            words = [name, "--help"]
    # Parse first: for help or a wrong argument argparse ends the process before a server starts.
    if (command_parser := create_command_parser(program, words[0])) is not None:
        command_parser.parse_args(words[1:])
    from annals.web.start import prepare_environment

    prepare_environment(words)
    from django.core.management import execute_from_command_line

    if words[0] != "consume":
        refuse_workers()
    execute_from_command_line([program, *words])


def refuse_workers() -> None:
    """Make Django's first connection fail if DATABASE_URL names a worker of a Citus cluster.

    A worker may not have the tables of Annals, and `migrate` would take it for a new database.
    """
    from django.db.backends.signals import connection_created

    def refuse(connection: "BaseDatabaseWrapper", **_: object) -> None:
        from history.store import distribution

        distribution.refuse_worker(connection.connection)
        connection_created.disconnect(dispatch_uid=WORKER_REFUSAL)

    connection_created.connect(refuse, weak=False, dispatch_uid=WORKER_REFUSAL)


def create_command_parser(program: str, name: str) -> ArgumentParser | None:
    """Create the parser of a command without starting Django, because Django starts slowly.

    Returns None if `name` is not a command of Annals, or if it extends a command of Django.
    """
    folder = next((app for app in APPS if _get_command_file(app, name).is_file()), None)
    if folder is None or name in EXTENDS_DJANGO or not name.replace("-", "").isalpha():
        return None
    module = import_module(f"{folder.replace('/', '.')}.management.commands.{name}")
    command_class = _exit_on_wrong_arguments(module.Command)
    command_parser: ArgumentParser = command_class().create_parser(program, name)
    return command_parser


def _exit_on_wrong_arguments(command_class: Any) -> Any:
    """Return a subclass of a command that ends the process if an argument is wrong.

    The parser of the subclass and the parsers of its subcommands print the error and exit. The
    parser of `command_class` would raise a CommandError.
    """

    def add_arguments(command: Any, parser: Any) -> None:
        parser.called_from_command_line = True
        command_class.add_arguments(command, parser)

    return type("Command", (command_class,), {"add_arguments": add_arguments})


def format_overview(program: str) -> str:
    """Format the text of `annals help`. `program` is the name by which it was called."""
    lines = [
        f"usage: {program} COMMAND [OPTIONS]",
        "",
        "Annals keeps the history of loan applications: who changed what, when.",
    ]
    for group, commands in COMMAND_GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<14} {summary}" for name, summary in commands.items()]
    lines += [
        "",
        f"`{program} COMMAND --help` has the options of a command.",
        f"`{program} help --all` has the commands of Django as well.",
    ]
    return "\n".join(lines)


def _get_command_file(app: str, name: str) -> Path:
    return ROOT / app / "management" / "commands" / f"{name}.py"
