"""Converts JSON that JSONB cannot hold as it is: texts with NUL, and numbers with large exponents.

PostgreSQL writes out a number with an exponent, so that a short text can become very long.
"""

import re

import msgspec

from history.documents.exactjson import dump_canonically, loads

# PostgreSQL returns 1e131071 with all its digits, but no text of 1 GB, so the digits are limited.
MAX_DIGITS = 64 * 1024 * 1024
MAX_BEFORE_POINT, MAX_AFTER_POINT = 131_072, 16_383  # the digits of PostgreSQL's numeric

# A snapshot up to this size cannot exceed the limit: 1e131071 and a comma are nine bytes.
_SMALL_BYTES = 9 * (MAX_DIGITS // MAX_BEFORE_POINT)
# Two patterns: the search for a literal first byte is several times faster.
_EXPONENTS = (re.compile(rb"e([+-]?)0*(\d{2,})"), re.compile(rb"E([+-]?)0*(\d{2,})"))
_STRING = rb'"(?:[^"\\]|\\.)*"'
_STRINGS = re.compile(_STRING, re.DOTALL)
_MAYBE_LONG = re.compile(rb"[eE][+-]?[0-9]{4}")
# Matches only from the start of a number. Tried at each digit, it would take quadratic time.
_LONG_EXPONENT = re.compile(rb"(?<![0-9.+-])[0-9.+-]++[eE][+-]?[0-9]{4,}")

# Shorter texts are not shortened: the search would cost every request, and save little.
MIN_SHORTENED_BYTES = 64 * 1024
MIN_ZEROS = 64

_ZEROS = b"0" * MIN_ZEROS
# Matches whole numbers. An expression for the zeros alone would be tried at each digit.
_TOKEN = re.compile(_STRING + rb"|[0-9.eE+-]+", re.DOTALL)


def count_excess_digits(text: bytes | memoryview) -> int:
    """Return by how many digits a JSON text grows when PostgreSQL writes out the exponents.

    Return 0 if the text grows by at most MAX_DIGITS.
    """
    if len(text) <= _SMALL_BYTES:
        return 0
    # Counting the letters is several times faster than searching for exponents.
    text = bytes(text)
    if text.count(b"e") + text.count(b"E") < MAX_DIGITS // MAX_BEFORE_POINT:
        return 0
    if _count_digits(text) <= MAX_DIGITS:
        return 0
    # Words such as "stage1000" were counted too.
    digits = _count_digits(_STRINGS.sub(b"", text))
    return digits if digits > MAX_DIGITS else 0


def _count_digits(text: bytes) -> int:
    """Return the most digits that PostgreSQL can add when it writes out long exponents.

    An exponent is long if it has at least two digits. Words in strings that look like long
    exponents, such as "stage1000", are counted too.
    """
    digits = 0
    for pattern in _EXPONENTS:
        for sign, exponent in pattern.findall(text):
            max_digits = MAX_AFTER_POINT if sign == b"-" else MAX_BEFORE_POINT
            # An exponent of more than six digits is beyond both limits.
            digits += min(int(exponent[:7]), max_digits)
    return digits


def can_be_stored(text: bytes) -> bool:
    """Return whether PostgreSQL can store the numbers of a well-formed JSON text."""
    if _MAYBE_LONG.search(text) is None:  # several times faster than the exact expression
        return not count_excess_digits(text)
    numbers = _LONG_EXPONENT.findall(_STRINGS.sub(b'""', text))
    return all(map(_is_storable_number, numbers)) and not count_excess_digits(text)


def _is_storable_number(number: bytes) -> bool:
    mantissa, _, exponent = number.lower().partition(b"e")
    if len(exponent.lstrip(b"+-").lstrip(b"0")) > len(str(MAX_BEFORE_POINT)):
        return False
    whole_digits, _, fraction = mantissa.lstrip(b"+-").partition(b".")
    point = int(exponent)
    return (
        len(whole_digits) + point <= MAX_BEFORE_POINT and len(fraction) - point <= MAX_AFTER_POINT
    )


def shorten_zeros(text: bytes) -> bytes:
    """Return the JSON text of a snapshot with long runs of zeros replaced by exponents."""
    if len(text) < MIN_SHORTENED_BYTES or _ZEROS not in text:
        return text
    return _TOKEN.sub(_shorten_number, text)


def _shorten_number(token: re.Match[bytes]) -> bytes:
    text = token[0]
    if len(text) <= MIN_ZEROS or text[:1] == b'"':
        return text
    number = text.removeprefix(b"-")
    sign = text[: len(text) - len(number)]
    if number.isdigit():
        digits = number.rstrip(b"0")
        zeros = len(number) - len(digits)
        return b"%b%be%d" % (sign, digits, zeros) if zeros >= MIN_ZEROS else text
    decimals = number.removeprefix(b"0.")
    if number.startswith(b"0." + _ZEROS) and decimals.isdigit():
        return b"%b%be-%d" % (sign, decimals.lstrip(b"0") or b"0", len(decimals))
    return text


QUOTE = ord('"')
_BACKSLASH, _ESCAPE = b"\\", rb"\u0000"
# Matches the escape only after an even number of backslashes. After an odd number, the backslash of
# the escape is itself escaped.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def may_have_nul(text: bytes) -> bool:
    """Return whether the JSON text can have an escaped NUL. False is certain, True is not."""
    return _BACKSLASH in text and _ESCAPE in text


def to_store(text: bytes) -> bytes:
    """Return the JSON text to store for a snapshot.

    A text without NUL is stored as it is. A text with NUL is stored as one JSON string: the text
    with sorted keys and no spaces, so that equal snapshots are stored as equal strings.
    """
    if _NUL.search(text) is None:
        return text
    try:
        inner = dump_canonically(loads(text))
    except ValueError:  # PostgreSQL refuses it
        return text
    return msgspec.json.encode(inner.decode())


def from_store(text: bytes) -> bytes:
    """Return the JSON text of a snapshot from the text of its stored JSONB. Undoes `to_store`."""
    if text[:2] != b'"{':
        return text
    return msgspec.json.decode(text, type=str).encode()
