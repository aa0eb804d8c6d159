"""The consumer: polls, decodes, adds to batches, has them written, commits offsets.

Begin with loop.py. state_machine.py decides, claims.py handles rebalancing, writers.py has the
threads that write.
"""
