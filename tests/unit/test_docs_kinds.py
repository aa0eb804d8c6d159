"""The examples of docs/kinds.md say what Annals reads."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path

from history.entities import BY_NAME
from history.kinds import declared
from history.window import Window
from ingest.source.decode import Decode
from ingest.source.envelope import Shapes
from ingest.source.forms import reader
from ingest.source.message import Message

PAGE = Path(__file__).parents[2] / "docs" / "kinds.md"
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
WINDOW = Window(date(2026, 1, 1), date(2027, 1, 1))
# A kind without a parent, whose reader is tested with the page's envelopes.
TOPIC = BY_NAME["product-instance"].topics[0]


def blocks(language: str) -> list[str]:
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [re.sub(f"(?m)^{space}", "", text) for space, name, text in found if name == language]


def test_every_file_of_the_page_can_be_read(tmp_path: Path) -> None:
    files = blocks("toml")
    assert len(files) == 4
    for number, text in enumerate(files):
        file = tmp_path / f"{number}.toml"
        file.write_text(text, encoding="utf-8")
        [kind] = declared.read(file)
        assert kind.name == "order"
        assert kind.alone


def test_every_message_of_the_page_becomes_the_version_that_it_says(tmp_path: Path) -> None:
    plain, events, rows = blocks("json")
    _short, _full, cloudevents, debezium = blocks("toml")
    for message, file in ((plain, None), (events, cloudevents), (rows, debezium)):
        shapes: Shapes = {}
        if file is not None:
            place = tmp_path / "kinds.toml"
            place.write_text(file, encoding="utf-8")
            [kind] = declared.read(place)
            assert kind.envelope is not None
            shapes = {TOPIC: reader(kind.envelope)}
        record = Decode(shapes)(Message(TOPIC, 0, 0, -1, None, message.encode()), WINDOW)
        assert record.id in ("O-17", "17")
        assert record.version == (1 if file is None else 3)
        assert record.type == 1
        assert record.author == "a.lee"
        assert record.client_id in ("shop", "/shop")
        assert datetime.fromtimestamp(record.updated_at / 1e6, UTC).isoformat() == (
            "2026-11-22T10:00:00+00:00"
        )
        assert "12.50" in bytes(record.data).decode()
        assert isinstance(json.loads(bytes(record.data)), dict)


def test_the_sentence_of_the_page_is_the_one_that_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(blocks("toml")[1].replace('"/number"', '"number"'), encoding="utf-8")
    try:
        declared.given({"ANNALS_ENTITIES_FILE": str(file)})
    except declared.KindsError as error:
        said = f"annals: {error}".replace(str(file), "/etc/annals/kinds.toml")
        assert said in PAGE.read_text(encoding="utf-8").splitlines()
    else:
        raise AssertionError("nothing was said")
