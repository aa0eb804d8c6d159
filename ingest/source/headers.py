"""The headers of a message as confluent_kafka has them, also if a name is not UTF-8."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from operator import methodcaller
from typing import Any

import confluent_kafka as ck

Headers = tuple[tuple[str, bytes | None], ...]

# raw.headers(), with a check of its result. Python leaves the check out once it has optimized a
# direct call, and the client's error would appear anywhere later.
_call_headers = methodcaller("headers")
# The name of a header whose bytes the client does not give.
NOT_READABLE = "(not readable)"


def headers(raw: ck.Message) -> Headers:
    """Pairs of name and value. Bytes of a name that are not UTF-8 are surrogates, as Python escapes
    them. Of several such names in one message the client gives only the first; the others are
    NOT_READABLE."""
    try:
        return tuple(_call_headers(raw) or ())
    except (SystemError, UnicodeDecodeError) as error:
        return _salvage(raw, error)


def _salvage(raw: ck.Message, error: BaseException) -> Headers:
    """What the client has built although it failed.

    confluent_kafka leaves each name that is not UTF-8 out of its pair, and only then fails, with
    the bytes of the first such name. The message keeps the pairs; the second call returns them.
    """
    names = (
        each.object.decode("utf-8", "surrogateescape")
        for each in _causes(error)
        if isinstance(each, UnicodeDecodeError)
    )
    try:
        pairs = _call_headers(raw)
    except (SystemError, UnicodeDecodeError):
        return ((next(names, NOT_READABLE), None),)
    found: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        # Reading a name that is left out would end the process. This lists only what is there.
        there: list[Any] = gc.get_referents(pair)
        if len(there) < 2:
            found.append((next(names, NOT_READABLE), there[0]))
        else:
            found.append((pair[0], pair[1]))
    return tuple(found)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
