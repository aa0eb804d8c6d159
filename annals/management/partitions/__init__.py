"""The verbs of `annals partitions`. A verb is imported only when it runs, so `--help` is fast.

Begin with nightly.py, which has the steps of `maintain` in their order.
"""
