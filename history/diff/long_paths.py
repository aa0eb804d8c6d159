"""Documents whose paths together would be far longer than the documents themselves.

Each change and each leaf has its path: a key of 100 KB around 2,000 fields is 100 KB in a message,
and 400 MB in an answer.
"""

import sys

from history.diff.identity import Identity
from history.exactjson import Json

# Characters of all paths of one comparison, or of all leaves of one document.
MOST = 16_000_000
NO_LIMIT = sys.maxsize
# Where there are more: a part with a longer pointer is one leaf.
SHORT = 200


class LongPathsError(Exception):
    """The paths of a comparison are longer than MOST."""


def longest_pointer(document: Json, identity: Identity) -> int:
    """How long the pointer of a part may be that is not yet a leaf: NO_LIMIT or SHORT."""
    total = 0
    stack: list[tuple[Json, int]] = [(document, 0)]
    while stack:
        value, length = stack.pop()
        if type(value) is dict:
            inside = [(inner, length + 1 + len(key)) for key, inner in value.items()]
        elif type(value) is list:
            below = length + 1 + len(str(len(value)))
            inside = [(inner, below + _name_length(inner, identity)) for inner in value]
        else:
            total += length
            continue
        if total + len(inside) * length > MOST:
            return SHORT
        stack += inside
    return NO_LIMIT if total <= MOST else SHORT


def _name_length(item: Json, identity: Identity) -> int:
    """How long the segment of a list item in a key path can be."""
    if type(item) is not dict:
        return 0
    values = [item.get(key) for key in identity.all_keys]
    return max((len(value) for value in values if type(value) is str), default=0)
