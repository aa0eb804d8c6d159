"""The file of kinds: what it declares, and one clear sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from annals import start
from history import entities, kinds
from history.kinds import declared
from tests.unit.test_forms import TASK
from tests.unit.test_forms import WRONG as WRONG_ENVELOPES

ORDER = 'name = "order"\ntitle = "Order"\ntopic = "orders"\n'
PRODUCT = 'name = "product"\ntitle = "Product"\ntopic = "products"\n'
MAIN = f"[[kind]]\n{ORDER}main = true\n"
A_KIND = 'kind "order": '
WRONG = {
    "not TOML": ("[[kind]]\nname = \n", "is not TOML: Invalid value (at line 2, column 8)"),
    "no kind": ("", "declares no kind. Write one [[kind]] for each."),
    "one bracket": (f"[kind]\n{ORDER}", "kind: must be tables: write [[kind]], with two brackets."),
    "unknown key of the file": (f"kinds = 1\n{MAIN}", "kinds: there is no such key here. Valid "
                                "keys: extends, kind."),
    "extends another file": (f'extends = "mine"\n{MAIN}', 'extends: must be one of "default".'),
    "no name": ('[[kind]]\ntitle = "Order"\n', "kind 1: name: is missing: the name of the kind"),
    "name is a number": ("[[kind]]\nname = 7\n", "kind 1: name: must be the name of the kind in "
                         "addresses and tables, in quotes."),
    "name is empty": ('[[kind]]\nname = ""\n', "name: must not be empty"),
    "name is no table": ('[[kind]]\nname = "Order Item"\n', 'kind "Order Item": name: must be small'
                         " Latin letters and digits"),
    "name begins with a digit": ('[[kind]]\nname = "1c"\n', "and begin with a letter"),
    "name with an underscore": ('[[kind]]\nname = "order_item"\n', "in words with hyphens"),
    "name is too long": (f'[[kind]]\nname = "{"o" * 41}"\n', "name: must have at most 40 characters"
                         ", not 41."),
    "name is an address": ('[[kind]]\nname = "person"\n', "name: is an address of Annals itself"),
    "no title": ('[[kind]]\nname = "order"\n', A_KIND + 'title: is missing: a text, or { en = '),
    "title is a list": ('[[kind]]\nname = "order"\ntitle = ["Order"]\n',
                        A_KIND + "title: must be a table: a text, or { en ="),
    "title in another language": ('[[kind]]\nname = "order"\ntitle = { de = "Auftrag" }\n',
                                  A_KIND + "title: de: there is no such key here. Valid keys: en"),
    "title without a language": ('[[kind]]\nname = "order"\ntitle = {}\n',
                                 A_KIND + "title: is empty: a text, or { en ="),
    "no topic": ('[[kind]]\nname = "order"\ntitle = "Order"\n', A_KIND + "topic: is missing"),
    "no name of a topic": ('[[kind]]\nname = "order"\ntitle = "Order"\ntopic = "my orders"\n',
                           A_KIND + 'topic: "my orders" is no name of a Kafka topic'),
    "twin is the topic": (f'[[kind]]\n{ORDER}migration_topic = "orders"\n',
                          A_KIND + "migration_topic: must differ from topic."),
    "unknown key of a kind": (f"[[kind]]\n{ORDER}colour = 1\n",
                              A_KIND + "colour: there is no such key here. Valid keys: name, title"
                              ", topic, migration_topic, main, parent, search"),
    "main is a text": (f'[[kind]]\n{ORDER}main = "yes"\n',
                       A_KIND + "main: must be true or false, without quotes."),
    "main with a parent": (f'{MAIN}parent = "orderId"\n', A_KIND + "parent: the main kind has no "
                           "parent. Remove parent, or main = true."),
    "a child without a main kind": (f'[[kind]]\n{ORDER}parent = "orderId"\n',
                                    A_KIND + "parent: there is no main kind"),
    "the parent is no pointer": (f'[[kind]]\n{ORDER}parent = "/a//b"\n',
                                 A_KIND + 'parent: "/a//b" has an empty name'),
    "two main kinds": (f"{MAIN}[[kind]]\n{PRODUCT}main = true\n",
                       'kind "product": main: kind "order" is the main kind already. One kind is.'),
    "a main kind besides the shipped one": (f'extends = "default"\n{MAIN}',
                                            A_KIND + 'main: kind "product-instance" is the main'),
    "a kind twice": (f"[[kind]]\n{ORDER}[[kind]]\n{ORDER}", A_KIND + "name: is declared twice."),
    "a shipped kind twice": (
        f'extends = "default"\n[[kind]]\n{ORDER.replace("order", "product-car", 1)}',
        'kind "product-car": name: is declared twice.',
    ),
    "a topic twice": (f'[[kind]]\n{ORDER}[[kind]]\n{PRODUCT.replace("products", "orders")}',
                      'kind "product": topic: "orders" is a topic of kind "order" too.'),
    "a shipped table without its column": (
        f'[[kind]]\n{ORDER.replace("order", "product-car", 1)}',
        'kind "product-car": parent: this name and its table come with Annals, and the kind needs '
        "a parent there.",
    ),
    "search is a list": (f'[[kind]]\n{ORDER}search = ["number"]\n',
                         A_KIND + "search: must be a table: names, each with a JSON pointer"),
    "search key without a slash": (f'[[kind]]\n{ORDER}search = {{ number = "number" }}\n',
                                   A_KIND + "search: number: must be a JSON pointer, which begins "
                                   'with a slash: "/number".'),
    "search key with a wrong escape": (f'[[kind]]\n{ORDER}search = {{ number = "/a~b" }}\n',
                                       'search: number: "/a~b" is no JSON pointer: write ~ as ~0'),
    "search key with an empty name": (f'[[kind]]\n{ORDER}search = {{ number = "/a//b" }}\n',
                                      'search: number: "/a//b" has an empty name'),
    "search key without a pointer": (f"[[kind]]\n{ORDER}search = {{ number = [] }}\n",
                                     "search: number: has no JSON pointer."),
    "search key is called id": (f'[[kind]]\n{ORDER}search = {{ id = "/id" }}\n',
                                'search: id: a search key has 1 to 40 Latin letters'),
    "one pointer in two search keys": (f'[[kind]]\n{ORDER}search = {{ a = "/n", b = "/n" }}\n',
                                       'search: "/n" is declared twice.'),
    "list_keys is a text": (f'[[kind]]\n{ORDER}list_keys = "sku"\n',
                            A_KIND + 'list_keys: must be a list of field names: ["sku", "id"].'),
    "list_places without a slash": (f'[[kind]]\n{ORDER}list_places = {{ items = ["sku"] }}\n',
                                    "list_places: items: must be a JSON pointer"),
    "list_places without a list": (f'[[kind]]\n{ORDER}list_places = {{ "/items" = 1 }}\n',
                                   "list_places: /items: must be a list of field names"),
    "created_at is a number": (f"[[kind]]\n{ORDER}created_at = 5\n",
                               A_KIND + "created_at: must be a field of the document, in quotes."),
    "label without a path": (f'[[kind]]\n{ORDER}[[kind.label]]\nen = "Total"\n',
                             A_KIND + "label 1: path: is missing"),
    "label without a text": (f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/total"\n',
                             A_KIND + 'label "/total": has no text: write en ='),
    "label twice": (f'[[kind]]\n{ORDER}' + '[[kind.label]]\npath = "/total"\nen = "Total"\n' * 2,
                    A_KIND + 'label "/total": is declared twice.'),
    "label of an unknown kind": (
        f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/t"\nen = "T"\nkind = "sum"\n',
        'label "/t": kind: must be one of "text", "money", "percent", "date", "enum", "technical".',
    ),
    "words without enum": (
        f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/t"\nen = "T"\nwords = {{ A = {{ en = "a" }} }}',
        'label "/t": words: are for kind = "enum" only.',
    ),
    "a mark at one place of a list": (
        f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/t/0"\nen = "T"\nsensitive = true\n',
        'label "/t/0": path: 0 is one place of a list, and items move: write *.',
    ),
}  # fmt: skip


@pytest.mark.parametrize("text, sentence", WRONG.values(), ids=WRONG)
def test_each_mistake_is_one_sentence_at_start(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("ANNALS_ENTITIES_FILE", str(file))
    with pytest.raises(SystemExit) as caught:
        start.checked_settings(["migrate"])
    said = str(caught.value)
    assert sentence in said
    assert said.startswith(f"annals: ANNALS_ENTITIES_FILE is wrong: {file}")
    assert said.endswith("See docs/kinds.md.")
    assert "\n" not in said


def said_of(text: str, file: Path) -> str:
    """What is said of this file, from the kind or key on."""
    file.write_text(text, encoding="utf-8")
    with pytest.raises(kinds.KindsError) as caught:
        declared.read(file)
    return str(caught.value).removeprefix(str(file)).removeprefix(":").strip()


def test_the_page_has_each_sentence(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "kinds.md").read_text(encoding="utf-8")
    lines = set(page.splitlines())
    said = {said_of(text, tmp_path / "kinds.toml") for text, _ in WRONG.values()}
    said |= {said_of(TASK + text, tmp_path / "kinds.toml") for text, _ in WRONG_ENVELOPES.values()}
    assert said - lines == set()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'[[kind]]\nname = "or\xe9"\n')
    deep = tmp_path / "deep.toml"
    deep.write_text("x = " + "[" * 100_000)
    cases = {
        tmp_path / "nothing.toml": "cannot be read: No such file or directory.",
        tmp_path: "cannot be read: Is a directory.",
        latin: "line 2 is not UTF-8.",
        deep: "nested too deep.",
    }
    for path, sentence in cases.items():
        with pytest.raises(kinds.KindsError, match=sentence) as caught:
            kinds.given({"ANNALS_ENTITIES_FILE": str(path)})
        assert str(path) in str(caught.value)


def test_a_name_in_the_file_does_not_command_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text('[[kind]]\nname = "x\\u001b[31m\\nannals: all is well\\u202e"\n')
    with pytest.raises(kinds.KindsError) as caught:
        declared.read(file)
    assert str(caught.value).isprintable()


def test_a_kind_that_stands_alone_under_a_rule_for_applications_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(f"[[kind]]\n{ORDER}", encoding="utf-8")
    monkeypatch.setenv("ANNALS_ENTITIES_FILE", str(file))
    monkeypatch.setenv("ANNALS_NEED_TO_KNOW", "tests.access.test_need_to_know.not_vip")
    with pytest.raises(SystemExit, match="'order' of ANNALS_ENTITIES_FILE stands alone"):
        start.checked_settings(["migrate"])


def test_what_a_file_declares(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(
        f'extends = "default"\n[[kind]]\n{ORDER}parent = "loan"\nlist_keys = ["sku"]\n'
        'search = { number = "/number", mail = ["/mail", "/owner/mail"] }\n'
        'list_places = { "/items" = ["line"] }\ncreated_at = "placed"\nclosed_at = "done"\n'
        'migration_topic = "orders.old"\n[[kind.label]]\npath = "/state"\nru = "Состояние"\n'
        'kind = "enum"\nwords = { NEW = { en = "New" } }\n',
        encoding="utf-8",
    )
    *shipped, order = declared.read(file)
    assert tuple(shipped) == kinds.shipped()
    assert order == kinds.Entity(
        "order", "Order", "Order", ("orders", "orders.old"), parent="loan",
        search=(("number", "/number"), ("mail", "/mail"), ("mail", "/owner/mail")),
        list_keys=("sku",), list_places=(("/items", ("line",)),), created_at="placed",
        closed_at="done",
        labels=(kinds.Label("/state", "", "Состояние", "enum", (("NEW", (("en", "New"),)),)),),
    )  # fmt: skip
    assert not order.alone
    assert (order.table, order.columns[-2].name) == ("order_aud", "product_instance_id")


def test_the_shipped_kinds_are_those_of_the_contract() -> None:
    assert kinds.given({}) == kinds.given({"ANNALS_ENTITIES_FILE": " "}) == entities.ENTITIES
    assert [(kind.name, kind.topics, kind.parent) for kind in kinds.shipped()] == [
        (
            name,
            (f"top-storage.export.{name}", f"top-storage.export.migration.{name}"),
            None if name == "product-instance" else "productInstanceId",
        )
        for name in (
            *("product-instance", "participant-role", "product-task", "realty-info"),
            "product-car",
        )
    ]
