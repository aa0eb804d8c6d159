"""Numbers that PostgreSQL writes out with thousands of zeros, written with an exponent again.

`1e131071` is 8 bytes in a message and 131,072 in the text of JSONB. Limiting such numbers in the
consumer costs every message 2 to 6 us, so they are shortened where documents leave the store.
"""

from __future__ import annotations

import re

# Shorter texts are left alone: to search them would cost every reader, and save little.
LEAST_BYTES = 64 * 1024
LEAST_ZEROS = 64

_ZEROS = b"0" * LEAST_ZEROS
# A number as a whole: an expression that also finds its zeros tries each place in it as their
# beginning, and a number may have 131,072 digits.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[0-9.eE+-]+', re.DOTALL)


def shortened(text: bytes) -> bytes:
    """The JSON text of a document with an exponent in the place of long rows of zeros. The value of
    each number stays, to its last digit; nothing else is changed."""
    if len(text) < LEAST_BYTES or _ZEROS not in text:
        return text
    return _TOKEN.sub(_short, text)


def _short(token: re.Match[bytes]) -> bytes:
    text = token[0]
    if len(text) <= LEAST_ZEROS or text[:1] == b'"':
        return text
    number = text.removeprefix(b"-")
    sign = text[: len(text) - len(number)]
    if number.isdigit():
        digits = number.rstrip(b"0")
        zeros = len(number) - len(digits)
        return b"%b%be%d" % (sign, digits, zeros) if zeros >= LEAST_ZEROS else text
    places = number.removeprefix(b"0.")
    if number.startswith(b"0." + _ZEROS) and places.isdigit():
        return b"%b%be-%d" % (sign, places.lstrip(b"0") or b"0", len(places))
    return text
