"""Decodes the bytes of a Kafka message into a record, or into the reason why it is bad.

Begin with decode.py. envelope.py and forms.py parse the envelopes that producers use.
"""
