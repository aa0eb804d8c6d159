"""Reading from Kafka: messages, topics and offsets, and decoding what a message says.

Begin with kafka.py (a member of the consumer group) and decode.py (from bytes to a record). Only
this folder imports confluent_kafka.
"""
