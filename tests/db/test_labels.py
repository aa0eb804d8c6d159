"""The catalogue of field labels: looking up, loading, what comes with Annals."""

import json
from pathlib import Path

import pytest
from django.core.management import call_command

from history import labels
from history.labels import Catalogue, LabelsFileError
from history.models import FieldLabel

LOAN = "product-instance"


def entry(path: str, russian: str, entity: str = "", kind: str = "text") -> FieldLabel:
    return FieldLabel(entity=entity, path=path, russian=russian, kind=kind)


def test_the_nearest_label_counts() -> None:
    catalogue = Catalogue(
        [
            entry("/rate", "any rate"),
            entry("/rate", "loan rate", LOAN),
            entry("/items/*", "item"),
            entry("/items/*/sum", "sum"),
            entry("/items/0/sum", "first sum"),
            entry("/*/deep/x", "x"),
        ]
    )

    def label(path: str, entity: str = LOAN) -> str | None:
        found = catalogue.find(entity, path)
        return found.russian if found else None

    assert label("/rate") == "loan rate"
    assert label("/rate", "product-car") == "any rate"
    assert label("/items/3") == "item"
    assert label("/items/3/sum") == "sum"
    assert label("/items/0/sum") == "first sum"
    assert label("/items/0/deep") is None
    assert label("/items/deep/x") == "x"
    assert label("/items/[pid=a~1b]/sum") == "sum"
    assert (label(""), label("/"), label("/nothing")) == (None, None, None)


def test_a_label_in_the_language_there_is() -> None:
    both = labels.Label("Ставка", "Rate", "percent", {})
    assert (both.text("ru"), both.text("ru-ru"), both.text("en-gb")) == ("Ставка", "Ставка", "Rate")
    assert labels.Label("Ставка", "", "percent", {}).text("en") == "Ставка"


@pytest.mark.django_db
def test_a_fresh_database_has_the_labels_that_come_with_annals() -> None:
    shipped = labels.read(labels.SHIPPED.read_bytes())
    assert FieldLabel.objects.count() == len(shipped) > 100
    rate = labels.catalogue().find(LOAN, "/rate")
    assert rate is not None
    assert (rate.russian, rate.kind) == ("Процентная ставка", "percent")


@pytest.mark.django_db
def test_an_edited_label_shows_at_once_and_stays() -> None:
    rate = FieldLabel.objects.get(entity=LOAN, path="/rate")
    rate.russian = "Ставка"
    rate.save()
    labels.load_shipped()  # as every migrate does
    found = labels.catalogue().find(LOAN, "/rate")
    assert found is not None
    assert found.russian == "Ставка"
    labels.forget()


@pytest.mark.django_db
def test_loaded_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    new = labels.catalogue().find("product-car", "/new")
    assert new is not None
    assert new.words == words
    labels.forget()


@pytest.mark.parametrize(
    "text, said",
    [
        ("{}", "Expected a list, got an object"),
        ('[{"path": "/a"}]', "russian"),
        ('[{"path": "a", "russian": "A"}]', "entry 1 .a.: a path begins with a slash"),
        ('[{"path": "/a", "russian": "A", "entity": "x"}]', "no kind of entity x"),
        *(
            (f'[{{"path": "{path}", "russian": "A", "sensitive": true}}]', said)
            for path, said in [
                ("/income/", "no slash at its end"),
                ("//income", "no empty segment"),
                ("/phones/0/number", "items move: write \\*"),
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
def test_a_wrong_file_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(LabelsFileError, match=said):
        labels.read(text.encode())


@pytest.mark.django_db
def test_a_label_that_marks_nothing_may_name_one_item() -> None:
    assert labels.load(b'[{"path": "/phones/0/number", "russian": "A"}]') == 1
