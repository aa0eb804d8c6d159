"""Reads the file of kinds that ANNALS_ENTITIES_FILE names, or the file that comes with Annals."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from history.common.explained_errors import ExplainedError, explain_declaration_error
from history.common.plain_text import to_one_line
from history.documents.json_pointer import as_pointer, split_pointer
from history.kinds.kind import DeclaredLabel, EntityKind, EnvelopeDeclaration, EnvelopeForm, Text

VARIABLE: Final = "ANNALS_ENTITIES_FILE"
SHIPPED: Final = Path(__file__).with_name("kinds.toml")
PRESETS: Final = Path(__file__).with_name("envelopes.toml")
SEE_DOCS: Final = "See docs/kinds.md."
# Words that Annals uses in addresses and arguments. As the name of a kind they would be ambiguous.
RESERVED_NAMES: Final = (
    "person",
    "fieldlabel",
    "quarantined",
    "access-journal",
    "at",
    "applications",
)
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_OCTETS: Final = re.compile(r"([0-9A-Fa-f]{2})+")
_ESCAPE: Final = re.compile(r"~(?![01])")
_PARENT: Final = "productInstanceId"

FieldPlace: TypeAlias = Annotated[str, Meta(max_length=200)]
ChangeWord: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]


class KindsError(ExplainedError, ValueError):
    """Raised if a kind is declared wrongly. The message says where, and what to write."""

    def __init__(self, text: str) -> None:
        super().__init__(to_one_line(text))


class _FileTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table in the file of kinds. "Table" is TOML's word."""


class _TitleTable(_FileTable, frozen=True):
    en: Text | None = None
    ru: Text | None = None


class _EnvelopeTable(_FileTable, frozen=True):
    form: EnvelopeForm = EnvelopeForm.PLAIN
    id: FieldPlace | None = None
    version: FieldPlace | None = None
    type: FieldPlace | None = None
    updated_at: FieldPlace | None = None
    client_id: FieldPlace | None = None
    author: FieldPlace | None = None
    data: FieldPlace | None = None
    client: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    types: dict[str, ChangeWord] | None = None
    unavailable_value_placeholder: Text | None = None


class _EnvelopePreset(_FileTable, frozen=True):
    """The defaults of an envelope form.

    Attributes:
        places: The default JSON pointer of each field, by the field's key in the file of kinds.
        fixed: The keys that the file must not have, because the form itself decides them.
        required: The keys that the file must have.
        types: The words that a message uses for CREATE, UPDATE and DELETE.
        only_these_types: True: the file must not declare other words than those in `types`.
    """

    places: dict[str, FieldPlace]
    fixed: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    types: dict[str, ChangeWord] = {}
    only_these_types: bool = False


class _KindTable(_FileTable, frozen=True):
    # The name is part of table names, which have at most 63 bytes, and is stored in columns.
    name: Annotated[str, Meta(max_length=40)]
    title: Annotated[str, Meta(min_length=1, max_length=100)] | _TitleTable
    topic: Annotated[str, Meta(max_length=249)]
    migration_topic: Annotated[str, Meta(max_length=249)] | None = None
    main: bool = False
    parent: Text | None = None
    search: dict[str, str | Annotated[tuple[str, ...], Meta(min_length=1)]] = {}
    list_keys: tuple[Text, ...] = ("pid", "id")
    list_places: dict[str, tuple[Text, ...]] = {}
    created_at: Text = "createdAt"
    closed_at: Text | None = None
    envelope: _EnvelopeTable | None = None
    label: tuple[DeclaredLabel, ...] = ()


class _KindsFile(_FileTable, frozen=True):
    extends: Literal["default"] | None = None
    kind: tuple[dict[str, Any], ...] = ()


def load_kinds(environ: Mapping[str, str] = os.environ) -> tuple[EntityKind, ...]:
    """Load the kinds from the file that ANNALS_ENTITIES_FILE names.

    If the variable is not set, load the kinds that come with Annals.

    Raises:
        KindsError: The file cannot be read, or has a mistake.
    """
    name = environ.get(VARIABLE, "").strip()
    if not name:
        return load_shipped_kinds()
    try:
        return read_kinds_file(Path(name).expanduser())
    except KindsError as error:
        raise KindsError(f"{VARIABLE} is wrong: {error} {SEE_DOCS}") from None


@cache
def load_shipped_kinds() -> tuple[EntityKind, ...]:
    """Load the kinds that come with Annals, also if ANNALS_ENTITIES_FILE names another file."""
    return _read_kinds(SHIPPED, ())


def read_kinds_file(path: Path) -> tuple[EntityKind, ...]:
    """Read the kinds of a file. If the file extends the shipped kinds, these come first.

    Raises:
        KindsError: The file cannot be read, or has a mistake.
    """
    return _read_kinds(path, load_shipped_kinds())


def find_mark_problems(path: str) -> Iterator[str]:
    """Yield a sentence for each mistake in the path of a sensitive field."""
    path_segments = path.split("/")[1:]
    if "" in path_segments:
        yield "the path of a sensitive field must not have an empty segment or end with a slash"
    for segment in path_segments:
        if segment.startswith("["):
            yield f"{segment} selects nothing in the path of a sensitive field; write * instead"
        elif segment.isdigit():
            yield (
                f"{segment} is one position in a list, but items change their positions; "
                "write * instead"
            )


def _read_kinds(path: Path, shipped_kinds: Sequence[EntityKind]) -> tuple[EntityKind, ...]:
    """Read the kinds of a file.

    Args:
        shipped_kinds: The kinds that come with Annals; empty while the shipped file is read.
    """
    try:
        file = msgspec.convert(tomllib.loads(path.read_bytes().decode()), _KindsFile)
        own_kinds = tuple(
            _convert_kind(values, number) for number, values in enumerate(file.kind, 1)
        )
        kinds = (*(shipped_kinds if file.extends else ()), *own_kinds)
        _check_combination(kinds, own_kinds, shipped_kinds)
    except OSError as error:
        raise KindsError(f"{path} cannot be read: {error.strerror}.") from None
    except KindsError as error:
        raise KindsError(f"{path}: {error}") from None
    except (UnicodeError, tomllib.TOMLDecodeError, RecursionError, msgspec.MsgspecError) as error:
        raise KindsError(
            f"{path}: {explain_declaration_error(error, 'TOML', _KindsFile)}."
        ) from None
    return kinds


def _convert_kind(values: Mapping[str, Any], number: int) -> EntityKind:
    """Convert one [[kind]] of the file.

    Args:
        number: The position of the [[kind]] in the file, counted from 1.

    Raises:
        KindsError: The declaration of this kind has a mistake.
    """
    name = values.get("name")
    where = f'kind "{name}"' if isinstance(name, str) else f"kind {number}"
    try:
        return _make_kind(msgspec.convert(values, _KindTable))
    except msgspec.ValidationError as error:
        raise KindsError(
            f"{where}: {explain_declaration_error(error, 'TOML', _KindTable, values)}."
        ) from None
    except KindsError as error:
        raise KindsError(f"{where}: {error}.") from None


def _make_kind(table: _KindTable) -> EntityKind:
    if not _NAME.fullmatch(table.name):
        raise KindsError(
            "name must have words of small Latin letters and digits with hyphens between them, "
            'and begin with a letter, as in "order-item". It becomes the name of a table'
        )
    if table.name in RESERVED_NAMES:
        raise KindsError(
            f'the name "{table.name}" is reserved, because Annals uses this word in addresses. '
            "Use a different name"
        )
    title = table.title
    english, russian = (title, title) if isinstance(title, str) else (title.en, title.ru)
    if not english and not russian:
        raise KindsError('title is empty. Write a text, or { en = "Order", ru = "Заказ" }')
    if table.main and table.parent is not None:
        raise KindsError("the main kind cannot have a parent. Remove parent, or main = true")
    if table.parent is not None:
        _to_field_pointer("parent", table.parent)
    _check_labels(table.label)
    return EntityKind(
        table.name,
        english or russian or "",
        russian or english or "",
        _list_topics(table),
        table.main,
        table.parent,
        search=tuple(_generate_search_keys(table.search)),
        list_keys=table.list_keys,
        list_places=tuple(
            (_check_pointer("list_places", place), keys)
            for place, keys in table.list_places.items()
        ),
        created_at=table.created_at,
        closed_at=table.closed_at,
        labels=table.label,
        envelope=_make_envelope(table.envelope, table.parent),
    )


def _list_topics(table: _KindTable) -> tuple[str, ...]:
    topics = (table.topic, *((table.migration_topic,) if table.migration_topic else ()))
    for topic in topics:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise KindsError(
                f'"{topic}" cannot be the name of a Kafka topic. A name has Latin letters, digits, '
                '".", "_" and "-"'
            )
    if table.topic == table.migration_topic:
        raise KindsError(
            "migration_topic must differ from topic. Remove it if the kind has only one topic"
        )
    return topics


def _generate_search_keys(keys: Mapping[str, str | tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, value in keys.items():
        if not _KEY.fullmatch(name) or name == "id":
            raise KindsError(
                f'"{name}" in search cannot be a business key. A key has 1 to 40 Latin letters, '
                'digits, _ and -, begins with a letter, and is not "id", by which every document '
                "is found"
            )
        for pointer in (value,) if isinstance(value, str) else value:
            if pointer in seen:
                raise KindsError(f'search has "{pointer}" twice')
            seen.add(pointer)
            yield name, _check_pointer(f"search.{name}", pointer)


def _check_labels(tables: Sequence[DeclaredLabel]) -> None:
    paths: set[str] = set()
    for table in tables:
        where = f'label "{table.path}"'
        _check_pointer(where, table.path)
        if not table.en and not table.ru:
            raise KindsError(f'{where} has no text. Write en = "...", ru = "...", or both')
        for problem in find_mark_problems(table.path) if table.sensitive else ():
            raise KindsError(f"{where}: {problem}")
        if table.words and table.kind != "enum":
            raise KindsError(
                f'{where} has the key "words", but only a label with kind = "enum" '
                "can have this key"
            )
        if table.path in paths:
            raise KindsError(f"{where} is declared twice")
        paths.add(table.path)


def _make_envelope(table: _EnvelopeTable | None, parent: str | None) -> EnvelopeDeclaration | None:
    """Return the envelope that a kind declares, or None if it declares none.

    Args:
        table: The kind's table `envelope`.
        parent: The field of a child that names its application.

    Raises:
        KindsError: The table has a mistake.
    """
    if table is None:
        return None
    preset = _load_presets()[table.form]
    places = _find_field_pointers(table, preset)
    types: dict[str, ChangeWord] = dict(preset.types) if table.types is None else table.types
    if not types:
        raise KindsError(
            'envelope.types is empty. Write for example { "order.created" = "CREATE" }'
        )
    if preset.only_these_types:
        if unknown := sorted(types.keys() - preset.types.keys()):
            words = ", ".join(preset.types)
            raise KindsError(
                f'envelope.types has "{unknown[0]}", but {table.form} has only the types {words}'
            )
        types = {**preset.types, **types}
    if table.time_unit is not None and "updated_at" not in places:
        raise KindsError(
            "envelope.time_unit applies only to the field that envelope.updated_at names, and "
            f"envelope.updated_at is not set. {table.form} has its own time field, with a known "
            "unit: remove time_unit or set updated_at"
        )
    _check_placeholder(table)
    contract_places = {_name_contract_field(key): place for key, place in places.items()}
    if parent is not None:
        contract_places[_PARENT] = _to_field_pointer("parent", parent)
    return EnvelopeDeclaration(
        table.form,
        tuple(contract_places.items()),
        tuple(types.items()),
        table.time_unit,
        table.client,
        placeholder=table.unavailable_value_placeholder,
    )


@cache
def _load_presets() -> dict[EnvelopeForm, _EnvelopePreset]:
    return msgspec.toml.decode(PRESETS.read_bytes(), type=dict[EnvelopeForm, _EnvelopePreset])


def _find_field_pointers(table: _EnvelopeTable, preset: _EnvelopePreset) -> dict[str, str]:
    """Return the JSON pointer of each field in a message, by the field's key in the file of kinds.

    Raises:
        KindsError: A key is missing, or must not be there.
    """
    places = dict(preset.places)
    for key in ("id", "version", "type", "updated_at", "client_id", "author", "data"):
        value = getattr(table, key)
        if value is None:
            continue
        if key in preset.fixed:
            raise KindsError(
                f"envelope.{key} must not be set: the form {table.form} decides it. "
                f"Remove envelope.{key}"
            )
        places[key] = (
            "" if key == "data" and not value else _to_field_pointer(f"envelope.{key}", value)
        )
    for key in preset.required:
        if key not in places and getattr(table, key) is None:
            raise KindsError(f"envelope.{key} is missing, and {table.form} has no default for it")
    if table.client is not None:
        if table.client_id is not None:
            raise KindsError("envelope has both client and client_id. Remove one")
        places.pop("client_id", None)
    return places


def _name_contract_field(key: str) -> str:
    """Return the name of a field in the message contract: `updatedAt` for the key `updated_at`."""
    first_word, *other_words = key.split("_")
    return first_word + "".join(word.title() for word in other_words)


def _check_placeholder(table: _EnvelopeTable) -> None:
    placeholder = table.unavailable_value_placeholder
    if placeholder is None:
        return
    if table.form is not EnvelopeForm.DEBEZIUM:
        raise KindsError(
            'envelope.unavailable_value_placeholder needs form = "debezium". Set this form, or '
            "remove the placeholder"
        )
    digits = placeholder.removeprefix("hex:")
    if digits != placeholder and not _OCTETS.fullmatch(digits):
        raise KindsError(
            'the "hex:" of envelope.unavailable_value_placeholder must be followed by pairs of '
            'hexadecimal digits, as in the setting of the connector. Example: "hex:FF"'
        )


def _to_field_pointer(where: str, name_or_pointer: str) -> str:
    """Return the JSON pointer of a field, declared by name or by pointer. See `_check_pointer`."""
    return _check_pointer(where, as_pointer(name_or_pointer))


def _check_pointer(where: str, value: str) -> str:
    """Return `value` if it is a JSON pointer to a part of a snapshot or message.

    Args:
        where: The name that the value has in the file of kinds, for the error.

    Raises:
        KindsError: The value is not a pointer.
    """
    if not value.startswith("/"):
        raise KindsError(f'{where} must be a JSON pointer and begin with a slash, as in "/number"')
    if _ESCAPE.search(value):
        raise KindsError(
            f'{where} has "{value}", but in a JSON pointer ~ is written ~0 and / is written ~1'
        )
    if "" in split_pointer(value):
        raise KindsError(
            f'{where} has the JSON pointer "{value}" with an empty name. '
            'A correct pointer is, for example, "/a/b"'
        )
    return value


def _check_combination(
    kinds: Sequence[EntityKind],
    own_kinds: Sequence[EntityKind],
    shipped_kinds: Sequence[EntityKind],
) -> None:
    """Check that the kinds of a file can exist together.

    Raises:
        KindsError: Two kinds have the same name, or share a topic, or are both the main kind. Or a
            kind has a parent, but there is no main kind. Or a kind has the name of a shipped kind,
            but does not fit its table.
    """
    if not own_kinds:
        raise KindsError("the file declares no kind. Write a [[kind]] for each kind.")
    names: set[str] = set()
    topics: dict[str, str] = {}
    for kind in kinds:
        if kind.name in names:
            raise _make_error(kind, "it is declared twice. Remove one of the two")
        names.add(kind.name)
        for topic in kind.topics:
            if topic in topics:
                raise _make_error(
                    kind, f'the topic "{topic}" is also a topic of kind "{topics[topic]}"'
                )
            topics[topic] = kind.name
    main = [kind for kind in kinds if kind.root]
    if len(main) > 1:
        raise _make_error(
            main[1], f'main = true, but kind "{main[0].name}" is the main kind already'
        )
    for kind in kinds:
        if kind.parent is not None and not main:
            raise _make_error(
                kind,
                "it has a parent, but no kind is the main kind. Declare one kind with "
                "main = true, or remove parent: then the kind stands alone",
            )
    shipped_by_name = {kind.name: kind for kind in shipped_kinds}
    for kind in own_kinds:
        shipped_kind = shipped_by_name.get(kind.name, kind)
        if (shipped_kind.parent is None) is not (kind.parent is None):
            verb = "must have" if shipped_kind.parent is not None else "cannot have"
            raise _make_error(
                kind,
                "the table of this name comes with Annals, and the kind of this table "
                f"{verb} a parent. Use another name",
            )


def _make_error(kind: EntityKind, problem: str) -> KindsError:
    return KindsError(f'kind "{kind.name}": {problem}.')
