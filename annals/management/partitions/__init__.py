"""The verbs of `annals partitions`, imported when the command runs.

Begin with nightly.py: the steps of `maintain` in their order. The verbs are not in the module of
the command, because together they are too long to read, and help must not wait for their imports.
"""
