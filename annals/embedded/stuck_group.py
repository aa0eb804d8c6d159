"""Deletes a consumer group of the embedded broker that would wait for a lost leader forever.

See docs/decisions/0030-stuck-clients.md.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka.admin import AdminClient

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 10


class StuckGroupRemover:
    """A callable that deletes a consumer group if the broker is the embedded one.

    The call returns without waiting for the broker. Other brokers never get the request to delete.

    Args:
        config: The librdkafka settings with which the brokers are reached.
        group: The name of the group.
    """

    def __init__(self, config: Mapping[str, str], group: str) -> None:
        self._config: dict[str, str | int | float | bool] = {**config}
        self._group = group
        # Kept after the answer: otherwise the callback could destroy the client in the client's own
        # thread, which librdkafka does not allow.
        self._admin: AdminClient | None = None

    def __call__(self) -> None:
        if self._admin is None:
            self._admin = AdminClient(self._config)
        described = self._admin.describe_cluster(request_timeout=ANSWER_SECONDS)
        described.add_done_callback(self._delete)

    def _delete(self, described: Future[Any]) -> None:
        # The embedded broker's cluster id is its directory.
        if self._admin is None or described.exception() is not None:
            return
        if str(described.result().cluster_id).startswith("/"):
            logger.warning("the embedded broker's group %s is stuck: deleting it", self._group)
            self._admin.delete_consumer_groups([self._group])
