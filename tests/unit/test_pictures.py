"""The pictures of the documentation: those of their texts, each in both languages, all small."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "docs/images"
TEXTS = sorted(IMAGES.glob("*.dot"))
PAGES = [*IMAGES.parent.glob("*.md"), IMAGES.parents[1] / "README.md"]
SCREENS = sorted(IMAGES.glob("*.webp"))
PICTURE = re.compile(r"!\[[^\]]*\]\((?:docs/)?images/([^)]+)\)")
MOST_BYTES = 2_000_000


def test_there_is_a_picture() -> None:
    assert TEXTS


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_a_picture_is_drawn_from_its_text(text: Path) -> None:
    drawn_from = f"sha256 {sha256(text.read_bytes()).hexdigest()} -->"
    picture = text.with_suffix(".svg").read_text(encoding="utf-8")
    assert drawn_from in picture, f"{text.name} was changed: run scripts/draw"
    # A browser shows it as part of the page: nothing in it may load or run something.
    assert "<script" not in picture
    assert "href" not in picture.replace("xlink", "").split("<g", 1)[1]


def test_each_screen_is_there_in_both_languages() -> None:
    stems = {path.name.split(".")[0] for path in SCREENS}
    assert stems
    wanted = {f"{stem}.{language}.webp" for stem in stems for language in ("en", "ru")}
    assert {path.name for path in SCREENS} == wanted


def test_a_page_shows_the_screens_in_its_language() -> None:
    shown: set[str] = set()
    for page in PAGES:
        language = "ru" if page.name.endswith(".ru.md") else "en"
        for name in PICTURE.findall(page.read_text(encoding="utf-8")):
            assert (IMAGES / name).exists(), f"{page.name}: {name}"
            if name.endswith(".webp"):
                assert name.endswith(f".{language}.webp"), f"{page.name}: {name}"
            shown.add(name.split(".")[0])
    assert shown == {path.name.split(".")[0] for path in IMAGES.iterdir()}


def test_the_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in IMAGES.iterdir()) < MOST_BYTES
