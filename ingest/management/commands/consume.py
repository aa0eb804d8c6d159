"""`annals consume`: reads messages from Kafka and stores them."""

from argparse import ArgumentParser, ArgumentTypeError

from history.kinds.entities import BY_TOPIC
from history.management.action import ActionCommand
from history.management.numbers import MAX_PORT, MAX_SECONDS, make_number_parser, make_whole_parser


class Command(ActionCommand):
    help = (
        "Read the topics and store every version. Stops cleanly on SIGTERM, on Ctrl-C and when "
        "its terminal is closed; on SIGUSR1 prints the stacks of its threads (functions and lines, "
        "no contents) and continues."
    )
    action = "ingest.management.actions.consume.run"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--topics", type=_parse_topics, default=tuple(BY_TOPIC),
            help="comma-separated topics (default: all, live and migration)")  # fmt: skip
        add(
            "--group",
            type=_parse_group,
            help="consumer group (default: that of ANNALS_CONSUMER_GROUP)",
        )
        add("--until-idle", type=make_number_parser(0, MAX_SECONDS), metavar="SECONDS",
            help="exit after this many seconds without a message, with everything stored: 0, or "
            "3 if partitions are halted and so not read to their end; 1 if for so long what cannot "
            "pass by waiting was in the way: missing rights or tables, a refused login, none of "
            "the topics (default: run until stopped)")  # fmt: skip
        add("--json", action="store_true", help="print a summary as one line of JSON at the end")
        add("--metrics-port", type=make_whole_parser(1, MAX_PORT),
            help="serve Prometheus metrics on this port; with ANNALS_METRICS_TOKEN to those who "
            "send it as Bearer token (default: none)")  # fmt: skip
        add("--metrics-address", default="127.0.0.1",
            help="the address for --metrics-port; one that others reach, as 0.0.0.0, needs "
            "ANNALS_METRICS_TOKEN (default: %(default)s)")  # fmt: skip


def _parse_group(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("a group has a name of at least one character")
    return text.strip()


def _parse_topics(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in BY_TOPIC]
    if unknown or not names:
        raise ArgumentTypeError(
            f"no kind of entity has the topic {', '.join(unknown) or '(none)'}; there are "
            f"{', '.join(BY_TOPIC)}"
        )
    return names
