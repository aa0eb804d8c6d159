"""What JSONB cannot hold, or only at a great length: texts with NUL, numbers with an exponent."""

import re

import msgspec

from history.documents.exactjson import canonical, loads

# PostgreSQL returns 1e131071 with all digits, and no text of 1 GB: so the digits are limited.
MOST_DIGITS = 64 * 1024 * 1024
MOST_BEFORE_POINT, MOST_AFTER_POINT = 131_072, 16_383  # of a numeric

# A document of this size cannot exceed the limit: 1e131071 and a comma are nine bytes.
_SMALL_BYTES = 9 * (MOST_DIGITS // MOST_BEFORE_POINT)
# Two patterns: the search for a literal first byte is several times faster.
_EXPONENTS = (re.compile(rb"e([+-]?)0*(\d{2,})"), re.compile(rb"E([+-]?)0*(\d{2,})"))
_STRING = rb'"(?:[^"\\]|\\.)*"'
_STRINGS = re.compile(_STRING, re.DOTALL)
_MAYBE_LONG = re.compile(rb"[eE][+-]?[0-9]{4}")
# Begins where a number begins: tried at each digit, a long number takes its square.
_LONG_EXPONENT = re.compile(rb"(?<![0-9.+-])[0-9.+-]++[eE][+-]?[0-9]{4,}")

# Shorter texts are left alone: to search them would cost every reader, and save little.
LEAST_BYTES = 64 * 1024
LEAST_ZEROS = 64

_ZEROS = b"0" * LEAST_ZEROS
# A number as a whole: with its zeros in the expression each digit would be tried as a beginning.
_TOKEN = re.compile(_STRING + rb"|[0-9.eE+-]+", re.DOTALL)


def too_many_digits(text: bytes | memoryview) -> int:
    """How many digits the exponents stand for, if more than MOST_DIGITS; else 0."""
    if len(text) <= _SMALL_BYTES:
        return 0
    # To count the letters is several times faster than to search for exponents.
    text = bytes(text)
    if text.count(b"e") + text.count(b"E") < MOST_DIGITS // MOST_BEFORE_POINT:
        return 0
    if _digits(text) <= MOST_DIGITS:
        return 0
    # Words such as "stage1000" were counted too.
    digits = _digits(_STRINGS.sub(b"", text))
    return digits if digits > MOST_DIGITS else 0


def _digits(text: bytes) -> int:
    """How many digits PostgreSQL adds when it writes out all numbers with an exponent, at most."""
    digits = 0
    for pattern in _EXPONENTS:
        for sign, exponent in pattern.findall(text):
            most = MOST_AFTER_POINT if sign == b"-" else MOST_BEFORE_POINT
            # A longer exponent than six digits is beyond both limits.
            digits += min(int(exponent[:7]), most)
    return digits


def can_be_stored(text: bytes) -> bool:
    """Whether PostgreSQL stores the numbers of a well-formed JSON text."""
    if _MAYBE_LONG.search(text) is None:  # several times faster, as it asks for less
        return not too_many_digits(text)
    numbers = _LONG_EXPONENT.findall(_STRINGS.sub(b'""', text))
    return all(map(_fits, numbers)) and not too_many_digits(text)


def _fits(number: bytes) -> bool:
    mantissa, _, exponent = number.lower().partition(b"e")
    if len(exponent.lstrip(b"+-").lstrip(b"0")) > len(str(MOST_BEFORE_POINT)):
        return False
    whole, _, fraction = mantissa.lstrip(b"+-").partition(b".")
    point = int(exponent)
    return len(whole) + point <= MOST_BEFORE_POINT and len(fraction) - point <= MOST_AFTER_POINT


def shortened(text: bytes) -> bytes:
    """The JSON text of a document with an exponent in the place of long rows of zeros."""
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


QUOTE = ord('"')
_BACKSLASH, _ESCAPE = b"\\", rb"\u0000"
# The backslash of the escape is not itself escaped.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def may_have_nul(text: bytes) -> bool:
    """False for nearly all texts, at the cost of a search for one byte."""
    return _BACKSLASH in text and _ESCAPE in text


def to_store(text: bytes) -> bytes:
    """The JSON text to store for a document: the text itself, or, if it has a NUL, one with sorted
    keys and no spaces, so that two texts of one document are stored equally."""
    if _NUL.search(text) is None:
        return text
    try:
        inner = canonical(loads(text))
    except ValueError:  # PostgreSQL refuses it
        return text
    return msgspec.json.encode(inner.decode())


def from_store(text: bytes) -> bytes:
    """The JSON text of a document, given the text of the stored JSONB."""
    if text[:2] != b'"{':
        return text
    return msgspec.json.decode(text, type=str).encode()
