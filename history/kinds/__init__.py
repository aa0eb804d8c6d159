"""The kinds of documents that this installation keeps. A TOML file declares them."""

from history.kinds.kind import DeclaredLabel, EntityKind, EnvelopeDeclaration, EnvelopeForm
from history.kinds.kinds_file import KindsError, load_kinds, load_shipped_kinds

__all__ = [
    "DeclaredLabel",
    "EntityKind",
    "EnvelopeDeclaration",
    "EnvelopeForm",
    "KindsError",
    "load_kinds",
    "load_shipped_kinds",
]
