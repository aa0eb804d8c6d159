"""Says which of the topics are missing, or may not be read, as long as that is so."""

import logging
import time

from ingest.source.brokers import TopicRequest, TopicStates
from ingest.source.client import NothingToReadError
from ingest.source.kafka import Source

logger = logging.getLogger(__name__)

# How often it is said that no partition is assigned because topics are missing or denied.
SAY_EVERY_SECONDS = 10.0
# How often the brokers are asked: until they have answered, and afterwards.
ASK_FIRST_SECONDS, ASK_AGAIN_SECONDS = 0.2, 2.0
_RIGHTS = (
    "docs/kafka.md has the rights that the login of ANNALS_KAFKA_SASL_USERNAME needs in Kafka: "
    "READ and DESCRIBE of the topics, READ of the group"
)


class TopicWatch:
    """Asks the brokers for the topics, at the start and while something is wrong with them.

    Args:
        until_idle: after this many seconds a run that has an end does not wait for topics; None for
            a run without one.
    """

    def __init__(self, until_idle: float | None) -> None:
        self._until_idle = until_idle
        self._began = self._said = time.monotonic()
        self._asked = 0.0
        self._request: TopicRequest | None = None
        self._states: TopicStates | None = None
        self._named: tuple[str, ...] = ()
        self._assigned = False

    def turn(self, source: Source, assigned: bool, now: float) -> None:
        """Do what is due; never waits.

        Args:
            assigned: whether the group has given this consumer partitions.

        Raises:
            NothingToReadError: a run with an end has waited long enough for topics.
        """
        if assigned and not self._assigned:
            self._states = None  # it may be of the time before the topics were made
        self._assigned = assigned
        known = self._states is not None and assigned and source.denied is None
        pause = ASK_FIRST_SECONDS if self._states is None else ASK_AGAIN_SECONDS
        if not known and now - self._asked >= pause:
            self._asked = now
            self._ask(source)
        if self._states is None and source.denied is None:
            return
        if assigned:
            self._name_missing()
        complaint = self._complaint(source, assigned)
        if complaint is None:
            return
        if self._until_idle is not None and not assigned and now - self._began >= self._until_idle:
            raise NothingToReadError(complaint)
        if now - self._said >= SAY_EVERY_SECONDS:
            self._said = now
            logger.error("%s", complaint)

    def _ask(self, source: Source) -> None:
        """Take the answer to the last request if it is there, and ask again."""
        if self._request is not None:
            if not self._request.wait():
                return
            states = self._request.get_states()
            answered = len(states.existing) + len(states.missing) + len(states.denied)
            if answered == len(set(source.topics)):
                self._states = states
        self._request = source.ask_topics(source.topics)

    def end(self, source: Source) -> None:
        """Raise NothingToReadError if topics may not be read; what could be read is stored."""
        if (complaint := self._complaint(source, assigned=True)) is not None:
            raise NothingToReadError(complaint)

    def _complaint(self, source: Source, assigned: bool) -> str | None:
        """Say why there is nothing to read, or not all; None if only some topics are missing."""
        denied = [f"the topic {topic}" for topic in (self._states.denied if self._states else ())]
        if source.denied is not None and source.denied not in denied:
            denied.append(source.denied)
        if denied:
            return f"the brokers do not let this login read {', '.join(denied)}. {_RIGHTS}"
        if self._states is None or assigned or len(self._states.missing) < len(source.topics):
            return None
        return (
            f"the brokers have no topic {', '.join(source.topics)}. Correct "
            "KAFKA_BOOTSTRAP_SERVERS, or create the topics: Annals makes none"
        )

    def _name_missing(self) -> None:
        missing = self._states.missing if self._states else ()
        if missing and missing != self._named:
            logger.warning(
                "the brokers have no topic %s; the others are read. Migration topics may be absent",
                ", ".join(missing),
            )
        self._named = missing
