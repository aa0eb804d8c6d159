"""What is missing and why: versions that never arrived, and what became of one message.

Begin with complete_to.py: up to which moment the store is complete. gaps/ finds versions that
never arrived; trace/ tells what became of a single one.
"""
