"""Reading from Kafka: messages, topics, offsets, and forecasts of losses.

Begin with source.py, a member of the consumer group. Of the code that reads messages, only this
folder imports confluent_kafka.
"""
