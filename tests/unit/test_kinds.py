"""The kinds file: the kinds that it declares, and one clear sentence for each mistake."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from annals.web import start
from history import kinds
from history.kinds import entities, kinds_file
from history.kinds.entities import BY_NAME
from history.store.days.window import Window
from ingest.messages.decode import Decoder
from ingest.messages.envelope import EnvelopeParsers
from ingest.messages.forms import create_parser
from ingest.messages.message import KafkaMessage
from scripts.pages import ROOT
from tests.docs_blocks.pages import BLOCKS

ORDER = 'name = "order"\ntitle = "Order"\ntopic = "orders"\n'
PRODUCT = 'name = "product"\ntitle = "Product"\ntopic = "products"\n'
MAIN = f"[[kind]]\n{ORDER}main = true\n"
WRONG = {
    "not TOML": ("[[kind]]\nname = \n", "it is not TOML: Invalid value (at line 2, column 8)."),
    "no kind": ("", "the file declares no kind. Write a [[kind]] for each kind."),
    "name is no table": (
        f"[[kind]]\n{ORDER.replace('order', 'Order Item', 1)}",
        'kind "Order Item": name must have words of small Latin letters and digits',
    ),
    "name is an address": (
        f"[[kind]]\n{ORDER.replace('order', 'person', 1)}",
        'kind "person": the name "person" is reserved, because Annals uses this word in addresses. '
        "Use a different name.",
    ),
    "title without a language": (
        '[[kind]]\nname = "order"\ntopic = "orders"\ntitle = {}\n',
        'kind "order": title is empty. Write a text, or { en = "Order", ru =',
    ),
    "no name of a topic": (
        '[[kind]]\nname = "order"\ntitle = "Order"\ntopic = "my orders"\n',
        'kind "order": "my orders" cannot be the name of a Kafka topic. A name',
    ),
    "two main kinds": (
        f"{MAIN}[[kind]]\n{PRODUCT}main = true\n",
        'kind "product": main = true, but kind "order" is the main kind already.',
    ),
    "a main kind besides the shipped one": (
        f'extends = "default"\n{MAIN}',
        'kind "order": main = true, but kind "product-instance" is the main kind',
    ),
    "a kind twice": (
        f"[[kind]]\n{ORDER}[[kind]]\n{ORDER}",
        'kind "order": it is declared twice. Remove one of the two.',
    ),
    "a topic twice": (
        f"[[kind]]\n{ORDER}[[kind]]\n{PRODUCT.replace('products', 'orders')}",
        'kind "product": the topic "orders" is also a topic of kind "order".',
    ),
    "a shipped table without its column": (
        f"[[kind]]\n{ORDER.replace('order', 'product-car', 1)}",
        'kind "product-car": the table of this name comes with Annals, and the',
    ),
}
T = '[[kind.label]]\npath = "/t"\nen = "T"\n'
# Texts that are added to a complete kind, and the error that each causes.
OF_ORDER = {
    'migration_topic = "orders"': "migration_topic must differ from topic. Remove it if",
    "colour = 1": "Object contains unknown field `colour`.",
    'main = true\nparent = "orderId"': "the main kind cannot have a parent. Remove parent, or",
    'parent = "orderId"': "it has a parent, but no kind is the main kind. Declare",
    'search = { number = "number" }': "search.number must be a JSON pointer and begin",
    'search = { number = "/a~b" }': 'search.number has "/a~b", but in a JSON pointer ~ is',
    'search = { id = "/id" }': '"id" in search cannot be a business key. A key has',
    'search = { a = "/n", b = "/n" }': 'search has "/n" twice.',
    'list_places = { items = ["sku"] }': "list_places must be a JSON pointer and begin with",
    '[[kind.label]]\npath = "/total"': 'label "/total" has no text. Write en = "...", ru =',
    '[[kind.label]]\npath = "/total"\nen = "Total"\n' * 2: 'label "/total" is declared twice.',
    f'{T}kind = "sum"': "Invalid enum value 'sum' - at `$.label[0].kind`.",
    f'{T}words = {{ A = {{ en = "a" }} }}': 'label "/t" has the key "words", but only a '
    'label with kind = "enum" can have this key.',
    T.replace("/t", "/t/0") + "sensitive = true": 'label "/t/0": 0 is one position in a list, but',
}
# Errors list the valid names and values, and suggest the most similar one.
TYPES = 'envelope = { form = "debezium", types = { c = "CREATE", u = "UPDTAE" } }'
VALID = {
    'serach = { number = "/n" }': "unknown field `serach`. Did you mean search? The valid ones are "
    "name, title, topic, migration_topic, main, parent, search, list_keys,",
    'envelope = { form = "cloudevent" }': "Did you mean cloudevents? It must be one of plain, "
    "cloudevents, debezium.",
    'envelope = { tpye = "/t" }': "`$.envelope`. Did you mean type? The valid ones are form, id,",
    'envelope = { time_unit = "minutes" }': "It must be one of ms, ns, s, us.",
    TYPES: 'The key is "u". Did you mean UPDATE? It must be one of CREATE, DELETE, UPDATE.',
    f"{T}colour = 1": "`$.label[0]`. The valid ones are path, en, ru, kind, words, sensitive.",
    f'{T}kind = "procent"': "Did you mean percent? It must be one of date, enum, money, percent,",
}
WRONG |= {added: (f"[[kind]]\n{ORDER}{added}\n", sentence) for added, sentence in VALID.items()}
WRONG["another table"] = (
    f"[[kinds]]\n{ORDER}",
    "Did you mean kind? The valid ones are extends, kind.",
)
WRONG |= {
    added: (f"[[kind]]\n{ORDER}{added}\n", f'kind "order": {sentence}')
    for added, sentence in OF_ORDER.items()
}


@pytest.mark.parametrize("text, sentence", WRONG.values(), ids=WRONG)
def test_mistake_in_kinds_file_prevents_start_with_an_error_of_one_sentence(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("ANNALS_ENTITIES_FILE", str(file))
    with pytest.raises(SystemExit) as caught:
        start.check_settings(["migrate"])
    message = str(caught.value)
    assert sentence in message
    assert message.startswith(f"annals: ANNALS_ENTITIES_FILE is wrong: {file}")
    assert message.endswith("See docs/kinds.md.")
    assert "\n" not in message


def test_start_reports_kinds_file_that_cannot_be_read(tmp_path: Path) -> None:
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
            kinds.load_kinds({"ANNALS_ENTITIES_FILE": str(path)})
        assert str(path) in str(caught.value)


def test_kind_without_applications_is_refused_when_a_need_to_know_rule_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(f"[[kind]]\n{ORDER}", encoding="utf-8")
    monkeypatch.setenv("ANNALS_ENTITIES_FILE", str(file))
    monkeypatch.setenv("ANNALS_NEED_TO_KNOW", "tests.access.test_need_to_know.not_vip")
    with pytest.raises(SystemExit, match="the kind 'order' in ANNALS_ENTITIES_FILE do not belong"):
        start.check_settings(["migrate"])


def test_kinds_file_adds_a_declared_kind_to_the_shipped_kinds(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(
        f'extends = "default"\n[[kind]]\n{ORDER}parent = "loan"\nlist_keys = ["sku"]\n'
        'search = { number = "/number", mail = ["/mail", "/owner/mail"] }\n'
        'list_places = { "/items" = ["line"] }\ncreated_at = "placed"\nclosed_at = "done"\n'
        'migration_topic = "orders.old"\n[[kind.label]]\npath = "/state"\nru = "Состояние"\n'
        'kind = "enum"\nwords = { NEW = { en = "New" } }\n',
        encoding="utf-8",
    )
    *shipped, order = kinds_file.read_kinds_file(file)
    assert tuple(shipped) == kinds.load_shipped_kinds()
    assert repr(order) == repr(
        kinds.EntityKind(
            "order",
            "Order",
            "Order",
            ("orders", "orders.old"),
            parent="loan",
            search=(("number", "/number"), ("mail", "/mail"), ("mail", "/owner/mail")),
            list_keys=("sku",),
            list_places=(("/items", ("line",)),),
            created_at="placed",
            closed_at="done",
            labels=(
                kinds.DeclaredLabel(
                    path="/state", ru="Состояние", kind="enum", words={"NEW": {"en": "New"}}
                ),
            ),
        )
    )
    assert not order.is_standalone
    assert (order.table, order.columns[-2].name) == ("order_aud", "product_instance_id")


def test_shipped_kinds_have_the_topics_of_the_contract() -> None:
    assert (
        kinds.load_kinds({}) == kinds.load_kinds({"ANNALS_ENTITIES_FILE": " "}) == entities.ENTITIES
    )
    assert [(kind.name, kind.topics, kind.parent) for kind in kinds.load_shipped_kinds()] == [
        (
            name,
            (f"top-storage.export.{name}", f"top-storage.export.migration.{name}"),
            None if name == "product-instance" else "productInstanceId",
        )
        for name in (
            "product-instance",
            "participant-role",
            "product-task",
            "realty-info",
            "product-car",
        )
    ]


PAGE = "docs/kinds.md"
WINDOW = Window(date(2026, 1, 1), date(2027, 1, 1))
# A kind without a parent, with which the envelopes of the page are tested.
TOPIC = BY_NAME["product-instance"].topics[0]


def list_blocks(language: str) -> list[str]:
    return [block.text for block in BLOCKS if (block.page, block.language) == (PAGE, language)]


def test_example_messages_in_documentation_of_kinds_give_the_documented_version(
    tmp_path: Path,
) -> None:
    plain, events, rows = list_blocks("json")
    _short, _full, cloudevents, debezium = list_blocks("toml")
    for message, file in ((plain, None), (events, cloudevents), (rows, debezium)):
        parsers: EnvelopeParsers = {}
        if file is not None:
            place = tmp_path / "kinds.toml"
            place.write_text(file, encoding="utf-8")
            [kind] = kinds_file.read_kinds_file(place)
            assert kind.envelope is not None
            parsers = {TOPIC: create_parser(kind.envelope)}
        record = Decoder(parsers)(KafkaMessage(TOPIC, 0, 0, -1, None, message.encode()), WINDOW)
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


def test_documentation_of_kinds_quotes_the_exact_error_for_a_wrong_pointer(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(list_blocks("toml")[1].replace('"/number"', '"number"'), encoding="utf-8")
    try:
        kinds_file.load_kinds({"ANNALS_ENTITIES_FILE": str(file)})
    except kinds_file.KindsError as error:
        line = f"annals: {error}".replace(str(file), "/etc/annals/kinds.toml")
        assert line in (ROOT / PAGE).read_text().splitlines()
    else:
        raise AssertionError("nothing was said")
