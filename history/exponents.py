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
_STRING = rb'"(?:[^"\\]|\\.)*"'
_WHOLE = rb"(?P<digits>-?[1-9][0-9]*?)(?P<zeros>0{%d,})(?![0-9.eE])" % LEAST_ZEROS
_FRACTION = rb"(?P<sign>-?)0\.(?P<places>0{%d,}[0-9]*)" % LEAST_ZEROS
# What begins in the middle of a number is no number.
_TOKEN = re.compile(
    rb"%b|(?<![0-9.eE+-])(?:%b|%b)|[0-9.eE+-]+" % (_STRING, _WHOLE, _FRACTION), re.DOTALL
)


def shortened(text: bytes) -> bytes:
    """The JSON text of a document with an exponent in the place of long rows of zeros. The value of
    each number stays, to its last digit; nothing else is changed."""
    if len(text) < LEAST_BYTES or _ZEROS not in text:
        return text
    return _TOKEN.sub(_short, text)


def _short(token: re.Match[bytes]) -> bytes:
    if token["zeros"]:
        return b"%be%d" % (token["digits"], len(token["zeros"]))
    if token["places"]:
        digits = token["places"].lstrip(b"0") or b"0"
        return b"%b%be-%d" % (token["sign"], digits, len(token["places"]))
    return token[0]
