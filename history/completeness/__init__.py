"""Explains what is missing: versions that never arrived, and the fate of one message.

Begin with complete_to.py, which says up to which moment the store is complete. gaps/ finds versions
that never arrived. trace/ explains what became of one version or message.
"""
