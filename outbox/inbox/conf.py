"""settings.INBOX, read once and checked."""

from dataclasses import dataclass

from outbox.conf import Common, once


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxConf(Common):
    """settings.INBOX. group: the consumer group. attempts: before a message becomes a dead letter.
    seconds: the longest an attempt may take."""

    NAME = "INBOX"

    group: str
    attempts: int = 10
    seconds: float = 60.0

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        self._require(isinstance(self.group, str) and bool(self.group), "GROUP must be a text")
        self._least("attempts", 1)
        self._least("seconds", 0.1)


conf = once(InboxConf)
