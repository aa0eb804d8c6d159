"""The file of kinds: what it declares, and one clear sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from annals import start
from history import entities, kinds
from history.kinds import declared

ORDER = 'name = "order"\ntitle = "Order"\ntopic = "orders"\n'
PRODUCT = 'name = "product"\ntitle = "Product"\ntopic = "products"\n'
MAIN = f"[[kind]]\n{ORDER}main = true\n"
A_KIND = 'kind "order": '
WRONG = {
    "not TOML": ("[[kind]]\nname = \n", "it is not TOML: Invalid value (at line 2, column 8)."),
    "no kind": ("", "declares no kind. Write one [[kind]] for each."),
    "one bracket": (f"[kind]\n{ORDER}", "kind must be a list, and is an object."),
    "unknown key of the file": (f"kinds = 1\n{MAIN}", "kinds is no known field."),
    "extends another file": (f'extends = "mine"\n{MAIN}', "extends has no value 'mine'."),
    "no name": ('[[kind]]\ntitle = "Order"\n', "kind 1: name is missing."),
    "name is no table": (
        f"[[kind]]\n{ORDER.replace('order', 'Order Item', 1)}",
        'kind "Order Item": name: must be small Latin letters and digits, in',
    ),
    "name with an underscore": (
        f"[[kind]]\n{ORDER.replace('order', 'order_item', 1)}",
        'kind "order_item": name: must be small Latin letters and digits, in',
    ),
    "name is too long": (
        f'[[kind]]\nname = "{"o" * 41}"\n',
        'kind "ooooooooooooooooooooooooooooooooooooooooo": name must have 40',
    ),
    "name is an address": (
        f"[[kind]]\n{ORDER.replace('order', 'person', 1)}",
        'kind "person": name: is an address of Annals itself. Use another name.',
    ),
    "title in another language": (
        '[[kind]]\nname = "order"\ntitle = { de = "Auftrag" }\n',
        'kind "order": title: de is no known field.',
    ),
    "title without a language": (
        '[[kind]]\nname = "order"\ntopic = "orders"\ntitle = {}\n',
        'kind "order": title: is empty: write a text, or { en = "Order", ru =',
    ),
    "no name of a topic": (
        '[[kind]]\nname = "order"\ntitle = "Order"\ntopic = "my orders"\n',
        'kind "order": topic: "my orders" is no name of a Kafka topic: these',
    ),
    "twin is the topic": (
        f'[[kind]]\n{ORDER}migration_topic = "orders"\n',
        'kind "order": migration_topic: must differ from topic. Without one,',
    ),
    "unknown key of a kind": (
        f"[[kind]]\n{ORDER}colour = 1\n",
        'kind "order": colour is no known field.',
    ),
    "main is a text": (
        f'[[kind]]\n{ORDER}main = "yes"\n',
        'kind "order": main must be true or false, and is a text.',
    ),
    "main with a parent": (
        f'{MAIN}parent = "orderId"\n',
        'kind "order": parent: the main kind has no parent. Remove parent, or',
    ),
    "a child without a main kind": (
        f'[[kind]]\n{ORDER}parent = "orderId"\n',
        'kind "order": parent: there is no main kind that could be its parent.',
    ),
    "two main kinds": (
        f"{MAIN}[[kind]]\n{PRODUCT}main = true\n",
        'kind "product": main: kind "order" is the main kind already. One is.',
    ),
    "a main kind besides the shipped one": (
        f'extends = "default"\n{MAIN}',
        'kind "order": main: kind "product-instance" is the main kind already.',
    ),
    "a kind twice": (
        f"[[kind]]\n{ORDER}[[kind]]\n{ORDER}",
        'kind "order": name: is declared twice. Each kind, and its table, is',
    ),
    "a topic twice": (
        f"[[kind]]\n{ORDER}[[kind]]\n{PRODUCT.replace('products', 'orders')}",
        'kind "product": topic: "orders" is a topic of kind "order" too.',
    ),
    "a shipped table without its column": (
        f"[[kind]]\n{ORDER.replace('order', 'product-car', 1)}",
        'kind "product-car": parent: this name and its table come with Annals,',
    ),
    "search key without a slash": (
        f'[[kind]]\n{ORDER}search = {{ number = "number" }}\n',
        'kind "order": search: number: must be a JSON pointer, which begins',
    ),
    "search key with a wrong escape": (
        f'[[kind]]\n{ORDER}search = {{ number = "/a~b" }}\n',
        'kind "order": search: number: "/a~b" is no JSON pointer: write ~ as',
    ),
    "search key is called id": (
        f'[[kind]]\n{ORDER}search = {{ id = "/id" }}\n',
        'kind "order": search: id: a search key has 1 to 40 Latin letters,',
    ),
    "one pointer in two search keys": (
        f'[[kind]]\n{ORDER}search = {{ a = "/n", b = "/n" }}\n',
        'kind "order": search: "/n" is declared twice.',
    ),
    "list_keys is a text": (
        f'[[kind]]\n{ORDER}list_keys = "sku"\n',
        'kind "order": list_keys must be a list, and is a text.',
    ),
    "list_places without a slash": (
        f'[[kind]]\n{ORDER}list_places = {{ items = ["sku"] }}\n',
        'kind "order": list_places: must be a JSON pointer, which begins with',
    ),
    "label without a path": (
        f'[[kind]]\n{ORDER}[[kind.label]]\nen = "Total"\n',
        'kind "order": label 1: path is missing.',
    ),
    "label without a text": (
        f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/total"\n',
        'kind "order": label "/total": has no text: write en = "...", ru =',
    ),
    "label twice": (
        f"[[kind]]\n{ORDER}" + '[[kind.label]]\npath = "/total"\nen = "Total"\n' * 2,
        'kind "order": label "/total": is declared twice.',
    ),
    "label of an unknown kind": (
        f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/t"\nen = "T"\nkind = "sum"\n',
        "kind \"order\": label 1, kind has no value 'sum'.",
    ),
    "words without enum": (
        f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/t"\nen = "T"\nwords = {{ A = {{ en = "a" }} }}',
        'kind "order": label "/t": words: are for kind = "enum" only.',
    ),
    "a mark at one place of a list": (
        f'[[kind]]\n{ORDER}[[kind.label]]\npath = "/t/0"\nen = "T"\nsensitive = true\n',
        'kind "order": label "/t/0": 0 is one place of a list, and items move:',
    ),
}


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


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'[[kind]]\nname = "or\xe9"\n')
    deep = tmp_path / "deep.toml"
    deep.write_text("x = " + "[" * 100_000)
    cases = {
        tmp_path / "nothing.toml": "cannot be read: No such file or directory.",
        tmp_path: "cannot be read: Is a directory.",
        latin: "it is not text in UTF-8",
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
