"""A soak test: an hour of load with passing days and faults, after which every version is counted.

Run it with `python -m tests.soak`.
"""
