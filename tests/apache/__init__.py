"""Runs Apache Kafka for the tests, and for people who try Annals with `scripts/kafka`."""
