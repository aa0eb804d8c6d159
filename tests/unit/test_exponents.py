"""Long rows of zeros are written with an exponent, in a time that grows with the text alone."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import msgspec
import pytest

from history.documents.jsonb import LEAST_BYTES, can_be_stored, shortened

ZEROS = "0" * 100
LONG = "0" * 131_000


def document(number: str) -> bytes:
    """A document with this number that is long enough to be looked at."""
    text = "0" * LEAST_BYTES
    return f'{{"text": "{text}", "quoted": "\\"{ZEROS}", "n": {number}}}'.encode()


def number_of(text: bytes) -> tuple[str, Decimal]:
    """The number as it is written, and its value."""
    found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    written = bytes(found["n"]).decode()
    assert msgspec.json.decode(found["text"]) == "0" * LEAST_BYTES
    assert msgspec.json.decode(found["quoted"]) == f'"{ZEROS}'
    return written, Decimal(written)


@pytest.mark.parametrize(
    "given, expected",
    [
        (f"1{ZEROS}", "1e100"),
        (f"-120{ZEROS}", "-12e101"),
        (f"0.{ZEROS}7", "7e-101"),
        (f"-0.{ZEROS}70", "-70e-102"),
        (f"0.{ZEROS}", "0e-100"),
        (f"1{ZEROS}.5", f"1{ZEROS}.5"),
        (f"1{ZEROS}e5", f"1{ZEROS}e5"),
        (f"0.{ZEROS}1e5", f"0.{ZEROS}1e5"),
        (f"1.{ZEROS}", f"1.{ZEROS}"),
        ("100", "100"),
        ("0", "0"),
    ],
)
def test_a_number_keeps_its_value(given: str, expected: str) -> None:
    assert number_of(shortened(document(given))) == (expected, Decimal(given))


@pytest.mark.parametrize(
    "number, fits",
    [
        ("1e131071", True),
        ("-1.5E+131071", True),
        ("12e131071", False),
        ("1e131072", False),
        ("1e-16383", True),
        ("1.5e-16383", False),
        ("1e-16384", False),
        ("1e00000005", True),
        ("1e999999999", False),
        ("1e1000000000000000000000", False),
        ("1e10", True),
        ('"1e999999999"', True),
        (r'"\"1e999999999"', True),
        (f"[{'1e131071,' * 513}0]", False),
    ],
)
def test_what_postgresql_can_store(number: str, fits: bool) -> None:
    assert can_be_stored(f'{{"n":{number}}}'.encode()) is fits


@pytest.mark.parametrize("number", [f"1{LONG}.5", f"1{LONG}e5", f"0.{LONG[:16_000]}e5", f"1{LONG}"])
def test_the_longest_numbers_hold_no_process(number: str) -> None:
    """One such number in a stored message held a web process for many minutes."""
    code = (
        "import sys; from history.documents.jsonb import can_be_stored, shortened;"
        "text = sys.stdin.buffer.read(); assert can_be_stored(text);"
        "sys.stdout.buffer.write(shortened(text))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=document(number), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert number_of(done.stdout)[1] == Decimal(number)
