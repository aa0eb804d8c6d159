"""Notes which topics do not exist: such a topic holds nothing back."""

import time
from typing import Final

from history.entities import BY_TOPIC
from ingest.consumer.heartbeats import Beats
from ingest.source.brokers import TopicRequest
from ingest.source.kafka import Source

ASK_SECONDS: Final = 10.0


class TopicCensus:
    """Asks the brokers again and again which topics of the declared kinds exist, also those that
    another consumer reads. Called by the consumer's loop; only finish() waits."""

    def __init__(self, beats: Beats) -> None:
        self._beats = beats
        self._due = 0.0
        self._asked: TopicRequest | None = None

    def turn(self, source: Source) -> None:
        """Note the answer that has come, and ask again if that is due."""
        if self._asked is not None and self._asked.wait():
            self._note(self._asked)
            self._asked = None
        if self._asked is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + ASK_SECONDS
            self._asked = source.ask_topics(BY_TOPIC)

    def finish(self, source: Source, seconds: float) -> None:
        """Ask a last time, and wait for the answer: nobody may ask before the next run."""
        asked = source.ask_topics(BY_TOPIC)
        if asked.wait(seconds):
            self._note(asked)

    def _note(self, asked: TopicRequest) -> None:
        """Have the ledger know the answer. One that knows none of the topics says nothing: it may
        come from a broker that has just started, or from another cluster."""
        states = asked.get_states()
        if states.existing:
            self._beats.note_topics(states.existing, states.missing, asked.asked_at)
