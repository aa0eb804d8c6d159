"""The life of a day: its partition is made, sealed, packed, archived, and dropped in the end.

Begin with plan.py: which days are created and dropped, and why. The steps of a night in their order
are in annals/management/partitions/nightly.py, because some of them belong to `ingest` or `annals`.
seals/ proves that the rows of a finished day have not changed.
"""
