"""The verbs of `annals partitions`, imported when the command runs.

Begin with nightly.py, which has the steps of `maintain` in their order. The verbs are not in the
module of the command: together they would be too long, and `--help` would wait for their imports.
"""
