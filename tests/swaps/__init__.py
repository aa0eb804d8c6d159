"""Many swaps of a day's table under readers and writers: `python -m tests.swaps --swaps 200`."""
