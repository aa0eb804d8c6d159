"""Reads and checks settings.INBOX."""

from dataclasses import dataclass

from outbox.conf import CommonConf, make_conf_loader


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxConf(CommonConf):
    """The settings in settings.INBOX.

    Attributes:
        group: The consumer group in Kafka.
        attempts: After how many failed attempts a message becomes a dead letter.
        seconds: How many seconds an attempt may take.
    """

    NAME = "INBOX"

    group: str
    attempts: int = 10
    seconds: float = 60.0

    def __post_init__(self) -> None:
        CommonConf.__post_init__(self)
        self._require(isinstance(self.group, str) and bool(self.group), "GROUP must be a text")
        self._require_at_least("attempts", 1)
        self._require_at_least("seconds", 0.1)


conf = make_conf_loader(InboxConf)
