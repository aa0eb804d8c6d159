"""Asks the old service for missing versions, and makes messages of what it has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from django.db import connection
from psycopg import sql

from annals.healing.answer import Answer, Range
from annals.healing.outbox_source import SourceError
from annals.healing.pace import Pace
from annals.healing.sources import OLD_SERVICE
from annals.healing.wanted import Document
from history.fallback import OldServiceError, OldVersion, Service, Subject
from history.fallback.client import can_be_asked, fetch
from history.record import ChangeType

SECONDS: Final = 30.0  # for one document: nobody waits for it
REQUESTS_PER_SECOND: Final = 5.0
NO_APPLICATION: Final = "it does not say to which application the version belongs"


class OldSource:
    """A source that is the old service."""

    name = OLD_SERVICE
    kinds = client_ids = None

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pace = Pace(REQUESTS_PER_SECOND)

    def answers(self, document: Document) -> Iterator[Answer]:
        """One answer for all missing versions. Raises SourceError, WrongAnswerError."""
        if not can_be_asked(document.id):
            yield Answer(document.missing, {}, gone=document.missing)
            return
        self._pace.wait()
        try:
            found = fetch(self._service, Subject(document.entity, document.id), SECONDS)
        except OldServiceError as error:
            raise SourceError(str(error)) from None
        wanted = [
            each
            for each in sorted(found, key=lambda each: each.version)
            if any(first <= each.version <= last for first, last in document.missing)
        ]
        application = _application(document) if wanted else None
        values: dict[int, bytes] = {}
        refused: dict[int, str] = {}
        for each in wanted:
            owner = each.product_instance_id or application
            if owner is None and not document.entity.root:
                refused[each.version] = NO_APPLICATION
            else:
                values[each.version] = message(each, owner)
        gone = list(_others(document.missing, [each.version for each in wanted]))
        yield Answer(document.missing, values, gone, refused=refused)


def message(version: OldVersion, application: str | None) -> bytes:
    """A version of the old service as the value of a message. The snapshot stays the text that
    came."""
    envelope = {
        "id": version.id,
        "version": version.version,
        "type": ChangeType(version.type).name,
        "updatedAt": version.updated_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "clientId": version.client_id,
    }
    if version.author is not None:
        envelope["author"] = version.author
    if application is not None and not version.entity.root:
        envelope["productInstanceId"] = application
    head = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    return head[:-1].encode() + b',"data":' + version.data + b"}"


def _application(document: Document) -> str | None:
    """The application of all stored versions of the document, if they have one and the same."""
    if document.entity.root:
        return None
    statement = sql.SQL("SELECT DISTINCT product_instance_id FROM {} WHERE id = %s LIMIT 2")
    table = sql.Identifier(document.entity.table)
    with connection.cursor() as cursor:
        cursor.execute(statement.format(table), [document.id])
        found = [application for (application,) in cursor.fetchall()]
    return found[0] if len(found) == 1 else None


def _others(ranges: list[Range], numbers: list[int]) -> Iterator[Range]:
    """What is left of the ranges without these ascending numbers."""
    for first, last in ranges:
        start = first
        for number in numbers:
            if start <= number <= last:
                if start < number:
                    yield start, number - 1
                start = number + 1
        if start <= last:
            yield start, last
