"""Nothing on the screens is left in English for a Russian reader, and the compiled files are fresh:
gettext's own tools are not on every machine, so that both are in the repository."""

import ast
import re
from collections.abc import Iterator
from gettext import GNUTranslations
from pathlib import Path
from string import Formatter

import pytest

from annals.settings import LOCALE_PATHS

FILES = [path / "ru" / "LC_MESSAGES" / "django.po" for path in LOCALE_PATHS]
STRING = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
ENTRY = re.compile(
    rf"^msgid {STRING}(?:msgid_plural {STRING})?((?:^msgstr(?:\[\d\])? {STRING})+)", re.MULTILINE
)
TRANSLATION = re.compile(rf"^msgstr(?:\[(\d)\])? {STRING}", re.MULTILINE)
SCRIPTED = re.compile(r"%\((\w+)\)s")


def entries(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Each message of a .po file with its translations: one, or one for each plural form."""
    for identity, _, translations, _ in ENTRY.findall(path.read_text()):
        texts = [_unquoted(found[1]) for found in TRANSLATION.findall(translations)]
        if _unquoted(identity):
            yield _unquoted(identity), texts


def _unquoted(lines: str) -> str:
    return "".join(ast.literal_eval(line) for line in lines.split("\n") if line.strip())


def _names(text: str) -> set[str]:
    fields = {name for _, name, _, _ in Formatter().parse(text) if name}
    return fields | set(SCRIPTED.findall(text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parts[-5])
def test_all_is_translated_and_compiled(path: Path) -> None:
    with path.with_suffix(".mo").open("rb") as file:
        compiled = GNUTranslations(file)
    found = dict(entries(path))
    assert len(found) > 10
    for identity, texts in found.items():
        assert all(texts), identity
        assert len(texts) in (1, 3), identity
        for text in texts:
            if "{" not in identity or '"' not in identity:
                assert _names(text) == _names(identity), identity
        for count, text in zip((1, 2, 5), texts, strict=False):
            told = compiled.ngettext(identity, identity, count)
            assert (told if len(texts) == 3 else compiled.gettext(identity)) == text
