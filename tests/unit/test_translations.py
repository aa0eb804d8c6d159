"""The Russian catalogues are complete, and their compiled files are fresh.

The repository has the compiled files too, because not every machine has gettext's tools.
"""

import ast
import re
from collections.abc import Iterator
from gettext import GNUTranslations
from pathlib import Path
from string import Formatter

import pytest
from django.utils.translation import gettext, override
from django.utils.translation.template import templatize

from annals.settings import LANGUAGES, LOCALE_PATHS

PROJECT = Path(__file__).parents[2]
SOURCE_LANGUAGE = "en"
TRANSLATED = [language for language, _ in LANGUAGES if language != SOURCE_LANGUAGE]


def list_catalogues(language: str) -> list[Path]:
    further = ("outbox/locale", "outbox/inbox/locale", "examples/shop/orders/locale")
    folders = [*LOCALE_PATHS, *(PROJECT / item for item in further)]
    return [path / language / "LC_MESSAGES" / "django.po" for path in folders]


FILES = [path for language in TRANSLATED for path in list_catalogues(language)]
FORMS = re.compile(r"nplurals=(\d)")
STRING = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
ENTRY = re.compile(
    rf"(?m)^(?:msgctxt {STRING})?msgid {STRING}(?:msgid_plural {STRING})?"
    rf"((?:^msgstr(?:\[\d\])? {STRING})+)"
)
TRANSLATION = re.compile(rf"^msgstr(?:\[(\d)\])? {STRING}", re.MULTILINE)
SCRIPTED = re.compile(r"%\((\w+)\)s")


def iterate_entries(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each message of a .po file with its translations, one for each plural form."""
    for context, text, _, translations, _ in ENTRY.findall(path.read_text()):
        texts = [_unquote_lines(actual[1]) for actual in TRANSLATION.findall(translations)]
        if _unquote_lines(text):
            yield "\x04".join(_unquote_lines(item) for item in (context, text) if item), texts


def _unquote_lines(lines: str) -> str:
    return "".join(ast.literal_eval(line) for line in lines.split("\n") if line.strip())


def _list_placeholders(text: str) -> set[str]:
    fields = {name for _, name, _, _ in Formatter().parse(text) if name}
    return fields | set(SCRIPTED.findall(text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-5]} {path.parts[-3]}")
def test_catalogues_are_complete_and_compiled(path: Path) -> None:
    with path.with_suffix(".mo").open("rb") as file:
        compiled = GNUTranslations(file)
    actual = dict(iterate_entries(path))
    assert len(actual) > 10
    forms = FORMS.search(path.read_text())
    assert forms is not None
    for identity, texts in actual.items():
        assert all(texts), identity
        assert len(texts) in (1, int(forms[1])), identity
        for text in texts:
            if "{" not in identity or '"' not in identity:
                assert _list_placeholders(text) == _list_placeholders(identity), identity
        for count, text in zip((1, 2, 5), texts, strict=False):
            translated = compiled.ngettext(identity, identity, count)
            assert (translated if len(texts) > 1 else compiled.gettext(identity)) == text


FUNCTION = re.compile(r"_|[np]?gettext(_lazy|_noop)?")
# Django's templatize converts {% translate %} and {% blocktranslate %} to gettext(u'text').
TEMPLATE_CALL = re.compile(r"""\bn?gettext\((u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))""")


def iterate_texts_of_code(path: Path) -> Iterator[str]:
    """Yield the translatable texts of a Python file; of a text with a plural only the singular."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and FUNCTION.fullmatch(_get_function_name(node.func)):
            texts = node.args[: 2 if _get_function_name(node.func).startswith("p") else 1]
            if all(isinstance(text, ast.Constant) for text in texts):
                yield "\x04".join(map(ast.literal_eval, texts))


def _get_function_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def iterate_texts_of_template(path: Path) -> Iterator[str]:
    for literal in TEMPLATE_CALL.findall(templatize(path.read_text())):
        yield ast.literal_eval(literal)


@pytest.mark.parametrize("language", TRANSLATED)
def test_catalogues_have_exactly_the_texts_that_the_code_translates(language: str) -> None:
    earlier = {
        identity for path in list_catalogues(language) for identity, _ in iterate_entries(path)
    }
    used: set[str] = set()
    for app in ("annals", "history", "ingest", "outbox", "examples/shop"):
        for path in (PROJECT / app).rglob("*.py"):
            used.update(iterate_texts_of_code(path))
        for path in (PROJECT / app).rglob("templates/**/*.html"):
            used.update(iterate_texts_of_template(path))
    assert len(used) > 200
    with override(language):  # Django's own catalogue translates some of them
        missing = {text for text in used - earlier if gettext(text) == text}
    assert missing == set(), f"add them to locale/{language}/LC_MESSAGES/django.po"
    assert earlier - used == set(), f"remove them from locale/{language}/LC_MESSAGES/django.po"
