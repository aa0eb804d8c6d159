"""The record of each unmasked value: in the access journal, and as a line in the log."""

from __future__ import annotations

import logging
from datetime import datetime

from django.http import HttpRequest

from history import looks
from history.entities import Entity
from history.exactjson import dumps

log = logging.getLogger(__name__)


def record_unmasking(
    request: HttpRequest,
    entity: Entity,
    id: str,
    version: int,
    moment: datetime,
    path: str,
    reason: str,
) -> None:
    """Record that the user of a request is about to see one masked value. version, moment: the
    number of the version, and when it was made. path: RFC 6901 pointer into the snapshot. The
    journal writes its entry before the answer leaves."""
    looks.unmasked(path, moment, reason)
    # As JSON: a line break in the reason cannot begin a line of its own.
    user, whose, where, why = (
        dumps(each).decode()
        for each in (request.user.get_username(), f"{entity.name} {id}", path, reason)
    )
    text = "unmasked by %s: %s version %d path %s, reason %s"
    log.warning(text, user, whose, version, where, why)
