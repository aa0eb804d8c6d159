"""Asks the brokers which topics exist, records the answer, and reports topics that are not read."""

import logging
import time
from typing import Final

from history.kinds.entities import BY_TOPIC
from ingest.consumer.heartbeat_writer import HeartbeatWriter
from ingest.kafka.brokers import TopicRequest, TopicStates
from ingest.kafka.client import NothingToReadError
from ingest.kafka.source import GroupMember

logger = logging.getLogger(__name__)

# How often to report that no partition is assigned because topics are missing or denied.
REPORT_EVERY_SECONDS = 10.0
# How often to ask the brokers for topics: until their first answer, and afterwards.
ASK_FIRST_SECONDS, ASK_AGAIN_SECONDS = 0.2, 2.0
# How often to ask for all topics, for the ledger.
CENSUS_SECONDS: Final = 10.0
_RIGHTS = (
    "docs/kafka.md has the rights that the login of ANNALS_KAFKA_SASL_USERNAME needs in Kafka: "
    "READ and DESCRIBE of the topics, READ of the group"
)


class TopicWatch:
    """Asks the brokers for the topics of this consumer, and reports topics that cannot be read.

    The watch asks at the start, and again while a topic cannot be read. The consumer's loop calls
    the methods, which never wait for the brokers.
    """

    def __init__(self, until_idle: float | None) -> None:
        """Begin to watch which topics can be read.

        Args:
            until_idle: How many seconds the run waits for topics before it ends. None: the run does
                not end by itself.
        """
        self._until_idle = until_idle
        self._began_at = self._reported_at = time.monotonic()
        self._asked_at = 0.0
        self._request: TopicRequest | None = None
        self._states: TopicStates | None = None
        self._reported_missing: tuple[str, ...] = ()
        self._assigned = False

    def check(self, member: GroupMember, assigned: bool, now: float) -> None:
        """Ask the brokers at intervals which topics exist, and report topics that cannot be read.

        Args:
            assigned: Whether the group has assigned partitions to this consumer.
            now: The current time by `time.monotonic()`.

        Raises:
            NothingToReadError: After `until_idle` seconds no partition is assigned, and the brokers
                have none of the topics or deny access. Never raised if `until_idle` is None.
        """
        if assigned and not self._assigned:
            self._states = None  # since this answer, topics may have been created
        self._assigned = assigned
        is_settled = self._states is not None and assigned and member.denied is None
        pause = ASK_FIRST_SECONDS if self._states is None else ASK_AGAIN_SECONDS
        if not is_settled and now - self._asked_at >= pause:
            self._asked_at = now
            self._ask(member)
        if self._states is None and member.denied is None:
            return
        if assigned:
            self._report_missing()
        problem = self._explain_problem(member, assigned)
        if problem is None:
            return
        waited_seconds = now - self._began_at
        if self._until_idle is not None and not assigned and waited_seconds >= self._until_idle:
            raise NothingToReadError(problem)
        if now - self._reported_at >= REPORT_EVERY_SECONDS:
            self._reported_at = now
            logger.error("%s", problem)

    def end(self, member: GroupMember) -> None:
        """Check that the brokers let this login read all topics.

        Call it at the end of a run with `until_idle`, after the last batches are written.

        Raises:
            NothingToReadError: The brokers do not let this login read a topic, or join the group.
        """
        if (problem := self._explain_problem(member, assigned=True)) is not None:
            raise NothingToReadError(problem)

    def _ask(self, member: GroupMember) -> None:
        """Take over the answer to the previous request, if any, and ask again which topics exist.

        Does nothing while the previous request is unanswered.
        """
        if self._request is not None:
            if not self._request.wait():
                return
            states = self._request.get_states()
            answered_count = len(states.existing) + len(states.missing) + len(states.denied)
            if answered_count == len(set(member.topics)):
                self._states = states
        self._request = member.ask_topics(member.topics)

    def _explain_problem(self, member: GroupMember, assigned: bool) -> str | None:
        """Return a sentence if the brokers refuse this login access, or have none of the topics.

        Otherwise return None. While partitions are `assigned`, only a refusal is a problem.
        """
        denied = [f"the topic {topic}" for topic in (self._states.denied if self._states else ())]
        if member.denied is not None and member.denied not in denied:
            denied.append(member.denied)
        if denied:
            return f"the brokers do not let this login read {', '.join(denied)}. {_RIGHTS}"
        if self._states is None or assigned or len(self._states.missing) < len(member.topics):
            return None
        return (
            f"the brokers have no topic {', '.join(member.topics)}. Correct "
            "KAFKA_BOOTSTRAP_SERVERS, or create the topics: Annals does not create them"
        )

    def _report_missing(self) -> None:
        missing = self._states.missing if self._states else ()
        if missing and missing != self._reported_missing:
            logger.warning(
                "the brokers have no topic %s; the other topics are read. A migration topic need "
                "not exist",
                ", ".join(missing),
            )
        self._reported_missing = missing


class TopicCensus:
    """Records in the ledger which topics of the declared kinds do not exist.

    Completeness does not wait for topics that do not exist. The census asks the brokers about the
    topics of all declared kinds, also about topics that this consumer does not read. The consumer's
    loop calls the methods, and only `finish` waits for the brokers.
    """

    def __init__(self, heartbeats: HeartbeatWriter) -> None:
        self._heartbeats = heartbeats
        self._due = 0.0
        self._request: TopicRequest | None = None

    def ask_when_due(self, member: GroupMember) -> None:
        """Ask the brokers at intervals which topics exist, and record an answer that has come."""
        if self._request is not None and self._request.wait():
            self._submit_answer(self._request)
            self._request = None
        if self._request is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + CENSUS_SECONDS
            self._request = member.ask_topics(BY_TOPIC)

    def finish(self, member: GroupMember, seconds: float) -> None:
        """Ask the brokers once more which topics exist, and record the answer.

        Args:
            seconds: How long to wait for the answer.
        """
        request = member.ask_topics(BY_TOPIC)
        if request.wait(seconds):
            self._submit_answer(request)

    def _submit_answer(self, request: TopicRequest) -> None:
        """Have the ledger record which topics exist, according to the answer of the brokers.

        The answer that no topic exists is not recorded. It proves nothing: it can come from a
        broker that has just started, or from a broker of a different cluster.
        """
        states = request.get_states()
        if states.existing:
            self._heartbeats.submit_topics(states.existing, states.missing, request.asked_at)
