"""Records which topics do not exist: such a topic holds nothing back."""

import time
from typing import Final

from history.kinds.entities import BY_TOPIC
from ingest.consumer.heartbeat_writer import HeartbeatWriter
from ingest.kafka.brokers import TopicRequest
from ingest.kafka.source import GroupMember

ASK_SECONDS: Final = 10.0


class TopicCensus:
    """Asks the brokers again and again which topics of the declared kinds exist.

    It asks for the topics that other consumers read, too. The consumer's loop calls it; only
    `finish` waits.
    """

    def __init__(self, heartbeats: HeartbeatWriter) -> None:
        self._heartbeats = heartbeats
        self._due = 0.0
        self._request: TopicRequest | None = None

    def ask_when_due(self, member: GroupMember) -> None:
        """Record the answer that has come, and ask again if that is due."""
        if self._request is not None and self._request.wait():
            self._submit_answer(self._request)
            self._request = None
        if self._request is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + ASK_SECONDS
            self._request = member.ask_topics(BY_TOPIC)

    def finish(self, member: GroupMember, seconds: float) -> None:
        """Ask a last time and wait for the answer: no consumer may ask before the next run."""
        request = member.ask_topics(BY_TOPIC)
        if request.wait(seconds):
            self._submit_answer(request)

    def _submit_answer(self, request: TopicRequest) -> None:
        """Have the answer written to the ledger, unless the brokers know none of the topics.

        Such an answer says nothing: it may come from a broker that has just started, or from
        another cluster.
        """
        states = request.get_states()
        if states.existing:
            self._heartbeats.submit_topics(states.existing, states.missing, request.asked_at)
