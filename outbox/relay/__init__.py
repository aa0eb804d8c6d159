"""The relay: sends recorded versions to Kafka, in order for each document."""
