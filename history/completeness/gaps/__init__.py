"""Finds versions that never arrived, day by day, and keeps them as gaps until they arrive.

Begin with run.py. scan.py reads the version numbers of days, judge.py opens and closes gaps.
"""
