"""The fixtures with which tests of whole processes run on both kinds of broker."""

from tests.kafka.fixtures import apache, apache_node, broker, embedded, topics

__all__ = ["apache", "apache_node", "broker", "embedded", "topics"]
