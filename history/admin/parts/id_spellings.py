"""Other spellings of an id or a number that a person typed or copied."""

from collections.abc import Iterator

# Letters that look the same in both alphabets.
_LATIN, _CYRILLIC = "ABEKMHOPCTYXaeopcyx", "АВЕКМНОРСТУХаеорсух"
_TO_CYRILLIC = str.maketrans(_LATIN, _CYRILLIC)
_TO_LATIN = str.maketrans(_CYRILLIC, _LATIN)
# The hyphens, dashes and the minus that text programs put in the place of a plain one.
_TO_HYPHEN = dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")
# Around a number, not in it. The last ones are invisible; they come with text from other programs.
SIGNS = " \t\r\n\"'«»“”„№#.,;:()[]<>\u00ad\u200b\u200e\u200f\u2060\ufeff"


def spellings(text: str) -> list[str]:
    """The text without signs around it, in capital and small letters, with letters of one alphabet,
    and with plain hyphens; each once, without the text itself."""
    bare = text.strip(SIGNS)
    found = dict.fromkeys([*_spellings(bare), *_spellings(bare.translate(_TO_HYPHEN))])
    found.pop(text, None)
    return [each for each in found if each]


def _spellings(text: str) -> Iterator[str]:
    for each in (text, text.upper(), text.lower()):
        yield each
        yield each.translate(_TO_LATIN)
        yield each.translate(_TO_CYRILLIC)
