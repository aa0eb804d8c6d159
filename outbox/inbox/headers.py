"""The headers of a message as confluent_kafka has them, also if a name is not UTF-8.

ingest.source.client does the same for Annals, which this wheel does not have.
"""

from __future__ import annotations

import gc
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Message as Raw

from outbox.inbox.message import Headers

# Python leaves the check of the result out once it has optimized a direct call, and the client's
# error would appear anywhere later.
_call: Final = methodcaller("headers")
# The name of a header whose name the client does not give.
NOT_READABLE: Final = "(not readable)"


def headers(raw: Raw) -> Headers:
    """Pairs of name and value. A name that is not UTF-8 is NOT_READABLE."""
    try:
        return _pairs(_call(raw) or ())
    except (SystemError, UnicodeDecodeError):
        # The client leaves such a name out of its pair, and fails then. The message keeps the
        # pairs, and the second call returns them.
        try:
            return _pairs(_call(raw))
        except (SystemError, UnicodeDecodeError):
            return ((NOT_READABLE, None),)


def _pairs(given: Any) -> Headers:
    found: list[tuple[str, bytes | None]] = []
    for pair in given:
        # Reading a name that is left out would end the process. This lists only what is there.
        there: list[Any] = gc.get_referents(pair)
        if len(there) < 2:
            found.append((NOT_READABLE, there[0]))
        else:
            found.append((str(pair[0]), _bytes(pair[1])))
    return tuple(found)


def _bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
