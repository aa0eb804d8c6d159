"""The verbs of `annals partitions`. They are imported when they run, so `--help` does not wait.

Begin with nightly.py, which has the steps of `maintain` in their order.
"""
