"""The relay: sends what is recorded to Kafka, each document's versions in order."""
