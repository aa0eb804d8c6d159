"""Labels that the metrics of the consumer and of the store share."""

from typing import Final

from history.common.metric import OpenValues, Values

OUTCOMES: Final = ("stored", "repeated", "expired", "quarantined")
CLIENT: Final = OpenValues("client services, at most 51; `other` for the rest")
TOPIC: Final = OpenValues("topics that consumers read")
PLACE: Final[dict[str, Values]] = {"topic": TOPIC, "partition": OpenValues("numbers of partitions")}
