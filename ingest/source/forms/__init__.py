"""The envelopes of topics that differ from the contract's: those of the file of kinds, and those of
ANNALS_ENVELOPES_FILE. Pure."""

from ingest.source.forms.declared import DECLARED, shapes

__all__ = ["DECLARED", "shapes"]
