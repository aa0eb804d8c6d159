"""Explains what is missing: messages that were not read, and versions that never arrived.

Begin with complete_to.py, which says up to which moment the store is complete. gaps/ finds versions
that never arrived. trace/ tells the fate of one version or message.
"""
