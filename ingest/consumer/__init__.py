"""The consumer: polls, decodes, adds to batches, has them written, commits offsets.

Begin with loop.py. state_machine.py decides what happens to each message, claims.py handles
rebalancing, and writers.py has the threads that write.
"""
