"""What is done to whole processes is done on both kinds of broker. Faults whose subject is the
database, or what a consumer decides, take minutes on each: on Apache Kafka if it is there, and on
both with ANNALS_TEST_BOTH_BROKERS=1, as `scripts/matrix` does it."""

import os
import shutil

import pytest

from tests.kafka.fixtures import apache, apache_node, broker, embedded, topics

__all__ = ["apache", "apache_node", "broker", "embedded", "topics"]

ON_ONE = (
    "test_faults_database",
    "test_faults_upstream",
    "test_sixth_entity",
    "test_stuck_consumer",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ANNALS_TEST_BOTH_BROKERS") == "1":
        return
    other = "embedded" if shutil.which("java") else "apache"
    left_out = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and item.path.stem in ON_ONE
        and f"[{other}" in item.name
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
