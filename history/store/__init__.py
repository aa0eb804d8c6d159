"""The tables of versions as PostgreSQL has them: days, packed blocks, business keys, sessions.

Begin with versions.py (a version as it is read) and days/ (one table for each day). Packed days
are in blocks/, the nodes of a Citus cluster in distribution/.
"""
