"""The kinds of entities that this installation keeps: declared in a TOML file, checked once."""

from history.kinds.declared import KindsError, given, shipped
from history.kinds.kind import Entity, Envelope, EnvelopeForm, Label

__all__ = ["Entity", "Envelope", "EnvelopeForm", "KindsError", "Label", "given", "shipped"]
