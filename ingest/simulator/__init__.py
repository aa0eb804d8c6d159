"""Realistic load: loan applications of a bank, living through their versions. Pure: no I/O."""
