"""Labels that metrics of the consumer and of the store have."""

from typing import Final

from history.metric import Open, Values

OUTCOMES: Final = ("stored", "repeated", "expired", "quarantined")
CLIENT: Final = Open("client services, at most 51; `other` for the rest")
TOPIC: Final = Open("topics that consumers read")
PLACE: Final[dict[str, Values]] = {"topic": TOPIC, "partition": Open("numbers of partitions")}
