"""The fixtures with which the Kafka tests run on both kinds of broker."""

from tests.kafka.fixtures import apache, apache_node, broker, embedded, group, topics

__all__ = ["apache", "apache_node", "broker", "embedded", "group", "topics"]
