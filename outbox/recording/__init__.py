"""Records versions in the transaction of the change.

Begin with writer.py, which stores versions. recording_block.py collects the changes made in a
`with as_one()` block. related_changes.py finds the documents that change when Django deletes rows
or changes relations.
"""
