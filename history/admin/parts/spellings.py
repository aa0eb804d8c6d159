"""Other spellings of an id or a number that a person typed or copied."""

from collections.abc import Iterator

# Letters that look the same in both alphabets.
_LATIN, _CYRILLIC = "ABEKMHOPCTYXaeopcyx", "АВЕКМНОРСТУХаеорсух"
_TO_CYRILLIC = str.maketrans(_LATIN, _CYRILLIC)
_TO_LATIN = str.maketrans(_CYRILLIC, _LATIN)
_AROUND = " \t\r\n\"'«»“”„№#.,;:()[]<>"


def spellings(text: str) -> list[str]:
    """The text without signs around it, in capital and small letters, and with letters of one
    alphabet; each once, without the text itself."""
    found = dict.fromkeys(_spellings(text.strip(_AROUND)))
    found.pop(text, None)
    return [each for each in found if each]


def _spellings(text: str) -> Iterator[str]:
    for each in (text, text.upper(), text.lower()):
        yield each
        yield each.translate(_TO_LATIN)
        yield each.translate(_TO_CYRILLIC)
