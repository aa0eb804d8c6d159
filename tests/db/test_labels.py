"""The catalogue of field labels: looking labels up, loading them, and the shipped labels."""

import json
from pathlib import Path

import pytest
from django.core.management import call_command

from history.models import FieldLabel
from history.store.catalogue import labels
from history.store.catalogue.labels import LabelCatalogue, LabelsFileError

LOAN = "product-instance"


def make_label(path: str, russian: str, entity: str = "", kind: str = "text") -> FieldLabel:
    return FieldLabel(entity=entity, path=path, russian=russian, kind=kind)


def test_most_specific_label_of_a_path_wins() -> None:
    catalogue = LabelCatalogue(
        [
            make_label("/rate", "any rate"),
            make_label("/rate", "loan rate", LOAN),
            make_label("/items/*", "item"),
            make_label("/items/*/sum", "sum"),
            make_label("/items/0/sum", "first sum"),
            make_label("/*/deep/x", "x"),
        ]
    )

    def label(path: str, entity: str = LOAN) -> str | None:
        entry = catalogue.find(entity, path)
        return entry.russian if entry else None

    assert label("/rate") == "loan rate"
    assert label("/rate", "product-car") == "any rate"
    assert label("/items/3") == "item"
    assert label("/items/3/sum") == "sum"
    assert label("/items/0/sum") == "first sum"
    assert label("/items/0/deep") is None
    assert label("/items/deep/x") == "x"
    assert label("/items/[pid=a~1b]/sum") == "sum"
    assert (label(""), label("/"), label("/nothing")) == (None, None, None)


def test_label_falls_back_to_other_language() -> None:
    field_text = labels.FieldText("Ставка", "Rate", "percent", {})
    assert (
        field_text.get_text("ru"),
        field_text.get_text("ru-ru"),
        field_text.get_text("en-gb"),
    ) == (
        "Ставка",
        "Ставка",
        "Rate",
    )
    assert labels.FieldText("Ставка", "", "percent", {}).get_text("en") == "Ставка"


@pytest.mark.django_db
def test_new_database_has_labels_that_annals_ships() -> None:
    shipped = labels.parse_labels_file(labels.SHIPPED_FILE.read_bytes())
    assert FieldLabel.objects.count() == len(shipped) > 100
    rate = labels.get_catalogue().find(LOAN, "/rate")
    assert rate is not None
    assert (rate.russian, rate.kind) == ("Процентная ставка", "percent")


@pytest.mark.django_db
def test_edited_label_shows_at_once_and_survives_migrate() -> None:
    rate = FieldLabel.objects.get(entity=LOAN, path="/rate")
    rate.russian = "Ставка"
    rate.save()
    labels.load_shipped_labels()  # every `migrate` does this
    label = labels.get_catalogue().find(LOAN, "/rate")
    assert label is not None
    assert label.russian == "Ставка"
    labels.forget_catalogue()


@pytest.mark.django_db
def test_labels_are_loaded_from_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "labels.json"
    words = {"A": {"ru": "А", "en": "A"}}
    file.write_text(
        json.dumps(
            [
                {"path": "/rate", "russian": "Ставка", "entity": LOAN},
                {"path": "/new", "russian": "Новое", "kind": "enum", "words": words},
            ]
        )
    )
    before = FieldLabel.objects.count()
    call_command("labels", "load", str(file))
    assert capsys.readouterr().out == "2 labels loaded.\n"
    assert FieldLabel.objects.count() == before + 1
    new = labels.get_catalogue().find("product-car", "/new")
    assert new is not None
    assert new.words == words
    labels.forget_catalogue()


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("{}", "Expected a list, got an object"),
        ('[{"path": "/a"}]', "russian"),
        ('[{"path": "a", "russian": "A"}]', "entry 1 .a.: a path begins with a slash"),
        ('[{"path": "/a", "russian": "A", "entity": "x"}]', "no kind of entity x"),
        *(
            (f'[{{"path": "{path}", "russian": "A", "sensitive": true}}]', sentence)
            for path, sentence in [
                ("/income/", "or end with a slash"),
                ("//income", "must not have an empty segment"),
                ("/phones/0/number", "items change their positions; write \\* instead"),
                ("/phones/[type=MOBILE]/number", "selects nothing"),
            ]
        ),
        ('[{"path": "/a", "russian": "A", "kind": "x"}]', "kind must be one of"),
        ('[{"path": "/a", "russian": "A", "name": "x"}]', "unknown field `name`"),
        (
            '[{"path": "/a", "russian": "A"}, {"path": "/a", "russian": "B"}]',
            "is in the file twice",
        ),
    ],
)
def test_error_names_entry_and_mistake_in_labels_file(text: str, sentence: str) -> None:
    with pytest.raises(LabelsFileError, match=sentence):
        labels.parse_labels_file(text.encode())


@pytest.mark.django_db
def test_path_of_label_can_point_to_one_list_item_when_field_is_not_marked() -> None:
    assert labels.load_labels(b'[{"path": "/phones/0/number", "russian": "A"}]') == 1
