"""The life of a day: its partition is made, sealed, packed, archived, and dropped in the end.

Begin with maintain.py: what `partitions maintain` does each night. plan.py says what is created
and dropped; seals/ proves that the rows of a finished day have not changed.
"""
