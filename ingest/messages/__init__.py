"""What a Kafka message says: from its bytes to a record, or to the reason why there is none.

Begin with decode.py. envelope.py and forms.py read the outer form that a producer uses.
"""
