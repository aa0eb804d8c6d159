"""The kinds of entities that this installation keeps: declared in a TOML file, checked once."""

from history.kinds.declared import KindsError, given, shipped
from history.kinds.kind import DeclaredLabel, Entity, Envelope, EnvelopeForm

__all__ = ["DeclaredLabel", "Entity", "Envelope", "EnvelopeForm", "KindsError", "given", "shipped"]
