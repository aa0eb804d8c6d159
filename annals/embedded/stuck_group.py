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


def forget_stuck_group(config: Mapping[str, str], group: str) -> None:
    """Delete a group at the embedded broker. Other brokers never get this request.

    Does not wait for the brokers.

    Args:
        config: The librdkafka settings with which the brokers are reached.
    """
    admin = AdminClient(dict(config))

    def delete(described: Future[Any]) -> None:
        # The embedded broker's cluster id is its directory.
        if described.exception() is None and str(described.result().cluster_id).startswith("/"):
            logger.warning("the embedded broker's group %s is stuck: deleting it", group)
            admin.delete_consumer_groups([group])

    admin.describe_cluster(request_timeout=ANSWER_SECONDS).add_done_callback(delete)
