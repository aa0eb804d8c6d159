"""Rows for what operators do with commands on the server: exports, looks into the journal."""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings

from annals.access.journal.entry import Entry
from annals.access.journal.words import Action, Actor, Outcome
from annals.access.journal.write import JournalError, write
from history.entities import Entity
from history.export.days import Day
from history.signals import ExportRefusedError

LOCAL: Final = "local"

log = logging.getLogger(__name__)


def login() -> str:
    """The operating system's name of the user who runs this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(os.getuid())


def record(action: Action, query: str, reason: str = "", **subject: str) -> None:
    """Add a row for the user of the operating system. subject: entity, entity_id, application.

    Raises JournalError, unless ANNALS_JOURNAL_FAILURE lets the command go on."""
    entry = Entry(
        login=login(),
        identity=f"uid:{os.getuid()}",
        actor=Actor.OPERATOR,
        address=LOCAL,
        request_id="",
        action=action,
        outcome=Outcome.SHOWN,
        status=0,
        query=query,
        reason=reason,
        **subject,
    )
    try:
        write([entry])
    except JournalError as error:
        if settings.ANNALS.journal_failure != "answer":
            raise
        log.warning("the access journal cannot be written: %s", error)


def on_export(entity: Entity, days: Sequence[Day], options: dict[str, Any], **_: Any) -> None:
    span = f"{days[0].day} to {days[-1].day}" if days else "no days"
    target = options["output"] or "standard output"
    text = f"export {entity.name} {span} as {options['format']} to {target}"
    unmasked = options["unmasked"]
    if unmasked:
        text += ", unmasked"
    try:
        record(Action.EXPORT, text, unmasked or options["reason"], entity=entity.name)
    except JournalError as error:
        raise ExportRefusedError(f"the access journal cannot be written: {error}") from None
