"""The pictures of the documentation are those of their texts."""

from hashlib import sha256
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "docs/images"
TEXTS = sorted(IMAGES.glob("*.dot"))


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
