"""`manage.py outbox answer`: the process that sends versions again on request.

A request is a message in the topic `annals.gaps`, a JSON object with `kind`, `id`, `from` and `to`.
It asks for the versions from number `from` to number `to`, both included. The offset of a request
is committed after Kafka has confirmed all versions, so a version can be sent more than once.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from django.db import Error, connections
from django.utils import timezone

from outbox.conf import Backoff, OutboxConf
from outbox.inbox.reader import TopicReader
from outbox.recording.message import RecordedVersion
from outbox.relay.queue import DueDocument, VersionChain
from outbox.relay.sender import VersionSender

logger = logging.getLogger(__name__)

GAPS_TOPIC: Final = "annals.gaps"
HIGHEST_NUMBER: Final = 2**31 - 1
_POLL_SECONDS: Final = 0.5
_OUTAGE: Final = Backoff(0.5, 30.0)
# How long one request may take. If the group removed a process because it took longer, the process
# would start the same request again, without end.
_LONGEST_REQUEST_SECONDS: Final = 1_800.0
# How many versions are read and sent at a time.
VERSIONS_AT_A_TIME: Final = 50
# Selects only versions that the relay has already sent. Unsent versions are left to the relay.
_VERSIONS: Final = """
SELECT version, type, recorded_at, updated_at, client_id, author, parent, data FROM outbox_message
WHERE document = %(key)s AND version BETWEEN %(first)s AND %(last)s
    AND version <= (SELECT sent FROM outbox_document WHERE key = %(key)s)
ORDER BY version LIMIT %(most)s
"""


class _KafkaOutageError(Exception):
    """Raised if Kafka does not accept messages now. The caller waits and tries again."""


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """A request for the versions `first` to `last`, both included, of the document `kind/id`."""

    kind: str
    id: str
    first: int
    last: int

    @property
    def document(self) -> str:
        return f"{self.kind}/{self.id}"


def parse_request(value: bytes | None) -> VersionRequest | None:
    """Parse the request in a message, or return None if it is not a valid request."""
    try:
        fields = json.loads(value or b"")
        first, last = int(fields["from"]), int(fields["to"])
        request = VersionRequest(str(fields["kind"]), str(fields["id"]), first, last)
        request.document.encode()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    # PostgreSQL stores neither NUL characters nor larger numbers.
    return None if "\0" in request.document or not 0 <= first <= last <= HIGHEST_NUMBER else request


@dataclass(slots=True)
class RequestAnswerer:
    """The process that sends versions from the outbox again when Annals requests them.

    Attributes:
        conf: The settings of the service.
        alias: The database in settings.DATABASES.
        stop: Set this event to make `run` return. The next process answers the current request
            again, from its first version.
        until_idle: After how many seconds without a request `run` returns. None: never.
    """

    conf: OutboxConf
    alias: str
    stop: Event = field(default_factory=Event)
    until_idle: float | None = None

    def run(self) -> None:
        """Read requests for versions, and send these versions again, until `stop` is set.

        The loop survives outages of the database and of Kafka.

        Raises:
            WrongSettingsError: Kafka's client refuses its settings. Raised before anything is read.
        """
        sender = VersionSender(self.conf)
        sender.start_client()
        reader = TopicReader(
            self.conf, f"{self.conf.client_id}-gaps", [GAPS_TOPIC], _LONGEST_REQUEST_SECONDS
        )
        try:
            while not self.stop.is_set() and not reader.is_idle(self.until_idle):
                for message in reader.read_messages(1, _POLL_SECONDS):
                    request = parse_request(message.value)
                    if request is None:
                        logger.warning(
                            "%s: this message is not a request for versions; it is skipped",
                            message.place,
                        )
                    elif request.kind in self.conf.topics and not self._answer_request(
                        request, sender
                    ):
                        return
                    reader.commit_offsets([message])
        finally:
            reader.close()
            connections[self.alias].close()

    def _answer_request(self, request: VersionRequest, sender: VersionSender) -> bool:
        """Send the requested versions, and retry after outages.

        Returns:
            False if `stop` was set before all versions were sent.
        """
        first, sent, failures = request.first, 0, 0
        while not self.stop.is_set():
            try:
                versions = self._load_versions(request, first)
                sent += _send_versions(versions, sender, self.stop)
            except (Error, _KafkaOutageError) as error:
                connections[self.alias].close()
                failures += 1
                logger.warning(
                    "%s: the requested versions could not be sent; trying again: %s",
                    request.document,
                    str(error).strip(),
                )
                self.stop.wait(_OUTAGE.choose_pause(failures))
                continue
            failures = 0
            if len(versions) < VERSIONS_AT_A_TIME:
                logger.info(
                    "%s, versions %s to %s: %s versions are sent again",
                    request.document,
                    request.first,
                    request.last,
                    sent,
                )
                return not self.stop.is_set()
            first = versions[-1].version + 1
        return False

    def _load_versions(self, request: VersionRequest, first: int) -> list[RecordedVersion]:
        """Return the next versions for the request, from number `first` on, in ascending order."""
        parameters: dict[str, str | int] = {"key": request.document, "last": request.last}
        with connections[self.alias].cursor() as cursor:
            cursor.execute(_VERSIONS, parameters | {"first": first, "most": VERSIONS_AT_A_TIME})
            return [RecordedVersion(request.document, *row) for row in cursor.fetchall()]


def _send_versions(versions: Iterable[RecordedVersion], sender: VersionSender, stop: Event) -> int:
    """Send versions of one document in their order, and return how many Kafka confirmed.

    A version that Kafka refuses is skipped: Kafka would refuse it every time.

    Raises:
        _KafkaOutageError: Kafka does not accept messages now.
    """
    unsent, sent_count = [*versions], 0
    while unsent and not stop.is_set():
        now = timezone.now()
        due = DueDocument(
            unsent[0].document, 0, unsent[0].version - 1, unsent[-1].version, now, now, 0
        )
        [outcome] = sender.send_chains([VersionChain(due, unsent)], lambda: not stop.is_set())
        confirmed = sum(version.version <= outcome.sent for version in unsent)
        sent_count, unsent = sent_count + confirmed, unsent[confirmed:]
        if outcome.failure is None:
            continue
        if outcome.failure.outage or outcome.failure.late:
            raise _KafkaOutageError(outcome.failure.text)
        logger.error(
            "%s, version %s: Kafka refuses it: %s",
            unsent[0].document,
            unsent[0].version,
            outcome.failure.text,
        )
        unsent = unsent[1:]
    return sent_count
