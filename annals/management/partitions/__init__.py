"""What `annals partitions` does, by its verbs. They are imported when the command runs.

Begin with nightly.py: the steps of `maintain` in their order. The verbs are in modules of their own
because together they would be too long to read, and because help must not wait for their imports.
"""
