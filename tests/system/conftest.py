"""Fixtures for tests of whole processes: the embedded broker and Apache Kafka."""

from tests.kafka.fixtures import apache, apache_node, broker, embedded, topics

__all__ = ["apache", "apache_node", "broker", "embedded", "topics"]
