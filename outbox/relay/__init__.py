"""The relay: sends recorded versions to Kafka, those of each document in order."""
