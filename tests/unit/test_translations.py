"""Russian is complete: every text of the code has its translation, and the compiled is fresh."""

import os
import re
import shutil
import subprocess
import sys
from ast import literal_eval
from gettext import GNUTranslations
from pathlib import Path

import pytest

from tests import need

ROOT = Path(__file__).parents[2]
APPS = ("history", "ingest")
ENTRY = re.compile(
    r'(?P<flags>(?:^#,.*\n)?)(?:^#[^,].*\n)*(?:^msgctxt (?P<context>".*")\n)?'
    r'^msgid (?P<id>(?:".*"\n)+)(?:^msgid_plural (?P<plural>(?:".*"\n)+))?'
    r'(?P<texts>(?:^msgstr(?:\[\d\])? (?:".*"\n?)+)+)',
    re.MULTILINE,
)
TRANSLATION = re.compile(r"^msgstr(?:\[\d\])? ", re.MULTILINE)
Texts = tuple[str, ...]


def plain(quoted: str | None) -> str:
    """The text of quoted pieces, one a line."""
    return "".join(literal_eval(piece) for piece in (quoted or "").split("\n") if piece)


def entries(path: Path) -> dict[tuple[str, str], tuple[Texts, str]]:
    """Of a .po file by context and text: the translation (several: plural forms) and the flags."""
    found = {}
    for match in ENTRY.finditer(path.read_text()):
        texts = tuple(plain(text) for text in TRANSLATION.split(match["texts"])[1:])
        key = plain(match["context"]), plain(match["id"])
        if key != ("", ""):
            found[key] = texts, match["flags"]
    return found


def catalogue(app: str) -> Path:
    return ROOT / app / "locale/ru/LC_MESSAGES/django.po"


@pytest.mark.parametrize("app", APPS)
def test_every_text_is_translated_and_none_by_a_guess(app: str) -> None:
    found = entries(catalogue(app))
    assert len(found) > 5
    for key, (texts, flags) in found.items():
        assert all(texts), f"not translated: {key}"
        assert "fuzzy" not in flags, f"guessed by a tool: {key}"


@pytest.mark.parametrize("app", APPS)
def test_what_is_compiled_is_what_is_written(app: str) -> None:
    with catalogue(app).with_suffix(".mo").open("rb") as file:
        compiled = GNUTranslations(file)
    for (context, text), (texts, _) in entries(catalogue(app)).items():
        key = f"{context}\x04{text}" if context else text
        if len(texts) > 1:
            found = tuple(compiled._catalog[key, n] for n in range(len(texts)))
        else:
            found = (compiled._catalog[key],)
        assert found == texts, f"stale: manage.py compilemessages ({app})"


@pytest.mark.parametrize("app", APPS)
def test_every_text_of_the_code_is_in_the_catalogue(app: str, tmp_path: Path) -> None:
    need.gettext()
    copy = tmp_path / app
    shutil.copytree(ROOT / app, copy, ignore=shutil.ignore_patterns("__pycache__"))
    written = set(entries(catalogue(app)))
    for stale in copy.glob("locale/ru/LC_MESSAGES/*"):
        stale.unlink()
    command = [sys.executable, "-P", "-m", "django", "makemessages", "--locale=ru", "--no-location"]
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    subprocess.run(command, cwd=copy, env=environment, check=True)
    in_code = set(entries(copy / "locale/ru/LC_MESSAGES/django.po"))
    assert in_code - written == set(), "scripts/lint does not write translations: makemessages"
    assert written - in_code == set(), "no longer in the code"
