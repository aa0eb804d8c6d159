"""What Kafka gives: messages, topics and offsets; and what a message says."""
