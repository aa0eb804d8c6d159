"""What `annals help` prints: Annals' own commands, in groups, with a line for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
        "share": "what each client service brings",
        "capacity": "the disk space of the history, now and later",
        "journal": "who looked at an application",
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
        "contract": "what a message must be, for programs: JSON Schema, AsyncAPI",
        "check": "look for mistakes: --deploy, --database default",
    },
    "Develop": {
        "makemigrations": "write migrations of changed tables",
    },
}
WIDTH = 14


def text(program: str) -> str:
    """program: how it was called."""
    lines = [
        f"usage: {program} COMMAND [OPTIONS]",
        "",
        "Annals keeps the history of loan applications: who changed what, when.",
    ]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<{WIDTH}} {what}" for name, what in commands.items()]
    return "\n".join(
        [
            *lines,
            "",
            f"`{program} COMMAND --help` has the options of a command.",
            f"`{program} help --all` has the commands of Django as well.",
        ]
    )
