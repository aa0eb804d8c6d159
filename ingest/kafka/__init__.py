"""Reading from Kafka: messages, topics, offsets, and forecasts of losses.

Begin with `GroupMember` in source.py, which reads as a member of the consumer group. Only this
folder of ingest imports confluent_kafka.
"""
