"""Reads the file of kinds: the shipped one, or that of ANNALS_ENTITIES_FILE."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from history.base.plain_text import one_line
from history.documents.json_pointer import as_pointer, segments
from history.failure.complaints import Complaint, of_declaration
from history.kinds.kind import DeclaredLabel, Entity, Envelope, EnvelopeForm, Text

VARIABLE: Final = "ANNALS_ENTITIES_FILE"
SHIPPED: Final = Path(__file__).parents[1] / "kinds.toml"
PRESETS: Final = Path(__file__).parents[1] / "envelopes.toml"
SEE: Final = "See docs/kinds.md."
# Addresses and arguments of Annals that a kind would hide.
TAKEN: Final = ("person", "fieldlabel", "quarantined", "access-journal", "at", "applications")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_OCTETS: Final = re.compile(r"([0-9A-Fa-f]{2})+")
_ESCAPE: Final = re.compile(r"~(?![01])")
_PARENT: Final = "productInstanceId"

Place: TypeAlias = Annotated[str, Meta(max_length=200)]
Change: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]


class KindsError(Complaint, ValueError):
    """The declaration of the kinds is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the file."""


class _Names(_Struct, frozen=True):
    en: Text | None = None
    ru: Text | None = None


class _EnvelopeTable(_Struct, frozen=True):
    form: EnvelopeForm = EnvelopeForm.PLAIN
    id: Place | None = None
    version: Place | None = None
    type: Place | None = None
    updated_at: Place | None = None
    client_id: Place | None = None
    author: Place | None = None
    data: Place | None = None
    client: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    types: dict[str, Change] | None = None
    unavailable_value_placeholder: Text | None = None


class _Preset(_Struct, frozen=True):
    """What a form has where the file says nothing. fixed: the keys that the form decides itself.
    required: those that the file must have. types: with the form's own words for it."""

    places: dict[str, Place]
    fixed: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    types: dict[str, Change] = {}
    only_these_types: bool = False


class _KindTable(_Struct, frozen=True):
    # Part of the names of tables, which have at most 63 bytes, and stored in columns.
    name: Annotated[str, Meta(max_length=40)]
    title: Annotated[str, Meta(min_length=1, max_length=100)] | _Names
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


class _File(_Struct, frozen=True):
    extends: Literal["default"] | None = None
    kind: tuple[dict[str, Any], ...] = ()


def given(environ: Mapping[str, str] = os.environ) -> tuple[Entity, ...]:
    """The kinds of this installation: those of the file that ANNALS_ENTITIES_FILE names, or the
    shipped ones. Raises KindsError."""
    name = environ.get(VARIABLE, "").strip()
    if not name:
        return shipped()
    try:
        return read(Path(name).expanduser())
    except KindsError as error:
        raise KindsError(f"{VARIABLE} is wrong: {error} {SEE}") from None


@cache
def shipped() -> tuple[Entity, ...]:
    """The kinds that come with Annals, whatever is declared."""
    return _kinds(SHIPPED, ())


def read(path: Path) -> tuple[Entity, ...]:
    """The kinds of a file, after the shipped ones if it extends these. Raises KindsError."""
    return _kinds(path, shipped())


def _kinds(path: Path, base: Sequence[Entity]) -> tuple[Entity, ...]:
    """base: the shipped kinds; empty while these are read."""
    try:
        file = msgspec.convert(tomllib.loads(path.read_bytes().decode()), _File)
        own = tuple(_kind(values, number) for number, values in enumerate(file.kind, 1))
        kinds = (*(base if file.extends else ()), *own)
        _check_together(kinds, own, base)
    except OSError as error:
        raise KindsError(f"{path} cannot be read: {error.strerror}.") from None
    except KindsError as error:
        raise KindsError(f"{path}: {error}") from None
    except (UnicodeError, tomllib.TOMLDecodeError, RecursionError, msgspec.MsgspecError) as error:
        raise KindsError(f"{path}: {of_declaration(error, 'TOML', _File)}.") from None
    return kinds


def _check_together(kinds: Sequence[Entity], own: Sequence[Entity], base: Sequence[Entity]) -> None:
    if not own:
        raise KindsError("declares no kind. Write one [[kind]] for each.")
    names: set[str] = set()
    topics: dict[str, str] = {}
    for kind in kinds:
        if kind.name in names:
            raise _wrong(kind, "name", "is declared twice. Each kind, and its table, is there once")
        names.add(kind.name)
        for topic in kind.topics:
            if topic in topics:
                raise _wrong(kind, "topic", f'"{topic}" is a topic of kind "{topics[topic]}" too')
            topics[topic] = kind.name
    main = [kind for kind in kinds if kind.root]
    if len(main) > 1:
        raise _wrong(main[1], "main", f'kind "{main[0].name}" is the main kind already. One is')
    for kind in kinds:
        if kind.parent is not None and not main:
            raise _wrong(
                kind,
                "parent",
                "there is no main kind that could be its parent. Declare one kind with "
                "main = true, or leave parent out: then the kind stands alone",
            )
    came = {kind.name: kind for kind in base}
    for kind in own:
        same = came.get(kind.name, kind)
        if (same.parent is None) is not (kind.parent is None):
            must = "needs" if same.parent is not None else "cannot have"
            raise _wrong(
                kind,
                "parent",
                f"this name and its table come with Annals, and the kind {must} a parent there. "
                "Use another name",
            )


def _wrong(kind: Entity, key: str, what: str) -> KindsError:
    return KindsError(f'kind "{kind.name}": {key}: {what}.')


def _kind(values: Mapping[str, Any], number: int) -> Entity:
    """The kind of one [[kind]] of the file. number: which, from 1. Raises KindsError."""
    called = values.get("name")
    where = f'kind "{called}"' if isinstance(called, str) else f"kind {number}"
    try:
        return _entity(msgspec.convert(values, _KindTable))
    except msgspec.ValidationError as error:
        raise KindsError(f"{where}: {of_declaration(error, 'TOML', _KindTable, values)}.") from None
    except KindsError as error:
        raise KindsError(f"{where}: {error}.") from None


def _entity(table: _KindTable) -> Entity:
    if not _NAME.fullmatch(table.name):
        raise KindsError(
            "name: must be small Latin letters and digits, in words with hyphens in between, and "
            'begin with a letter: "order-item". It becomes the name of a table'
        )
    if table.name in TAKEN:
        raise KindsError("name: is an address of Annals itself. Use another name")
    title = table.title
    english, russian = (title, title) if isinstance(title, str) else (title.en, title.ru)
    if not english and not russian:
        raise KindsError('title: is empty: write a text, or { en = "Order", ru = "Заказ" }')
    if table.main and table.parent is not None:
        raise KindsError("parent: the main kind has no parent. Remove parent, or main = true")
    if table.parent is not None:
        _field("parent", table.parent)
    _check_labels(table.label)
    return Entity(
        table.name,
        english or russian or "",
        russian or english or "",
        _topics(table),
        table.main,
        table.parent,
        search=tuple(_search(table.search)),
        list_keys=table.list_keys,
        list_places=tuple(
            (_pointer("list_places", place), keys) for place, keys in table.list_places.items()
        ),
        created_at=table.created_at,
        closed_at=table.closed_at,
        labels=table.label,
        envelope=_envelope(table.envelope, table.parent),
    )


def _topics(table: _KindTable) -> tuple[str, ...]:
    found = (table.topic, *((table.migration_topic,) if table.migration_topic else ()))
    for topic in found:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise KindsError(
                f'topic: "{topic}" is no name of a Kafka topic: these have Latin letters, digits, '
                '".", "_" and "-"'
            )
    if table.topic == table.migration_topic:
        raise KindsError("migration_topic: must differ from topic. Without one, leave it out")
    return found


def _search(keys: Mapping[str, str | tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, value in keys.items():
        if not _KEY.fullmatch(name) or name == "id":
            raise KindsError(
                f"search: {name}: a search key has 1 to 40 Latin letters, digits, _ and -, begins "
                'with a letter, and is not "id", by which everything is found'
            )
        for pointer in (value,) if isinstance(value, str) else value:
            if pointer in seen:
                raise KindsError(f'search: "{pointer}" is declared twice')
            seen.add(pointer)
            yield name, _pointer(f"search: {name}", pointer)


def _check_labels(tables: Sequence[DeclaredLabel]) -> None:
    paths: set[str] = set()
    for table in tables:
        where = f'label "{table.path}"'
        _pointer(where, table.path)
        if not table.en and not table.ru:
            raise KindsError(f'{where}: has no text: write en = "...", ru = "...", or both')
        for problem in problems_of_mark(table.path) if table.sensitive else ():
            raise KindsError(f"{where}: {problem}")
        if table.words and table.kind != "enum":
            raise KindsError(f'{where}: words: are for kind = "enum" only')
        if table.path in paths:
            raise KindsError(f"{where}: is declared twice")
        paths.add(table.path)


def problems_of_mark(path: str) -> Iterator[str]:
    """What is wrong with the path of a sensitive field, in sentences."""
    parts = path.split("/")[1:]
    if "" in parts:
        yield "the path of a sensitive field has no empty segment and no slash at its end"
    for part in parts:
        if part.startswith("["):
            yield f"{part} selects nothing in the path of a sensitive field: write *"
        elif part.isdigit():
            yield f"{part} is one place of a list, and items move: write *"


@cache
def _presets() -> dict[EnvelopeForm, _Preset]:
    return msgspec.toml.decode(PRESETS.read_bytes(), type=dict[EnvelopeForm, _Preset])


def _envelope(table: _EnvelopeTable | None, parent: str | None) -> Envelope | None:
    """parent: the field that names the parent."""
    if table is None:
        return None
    preset = _presets()[table.form]
    places = _places(table, preset)
    types: dict[str, Change] = dict(preset.types) if table.types is None else table.types
    if not types:
        raise KindsError('envelope: types: is empty: { "order.created" = "CREATE" }')
    if preset.only_these_types:
        if unknown := sorted(types.keys() - preset.types.keys()):
            known = ", ".join(preset.types)
            raise KindsError(f"envelope: types: {unknown[0]}: is no word of {table.form}: {known}")
        types = {**preset.types, **types}
    if table.time_unit is not None and "updated_at" not in places:
        raise KindsError(f"envelope: time_unit: needs updated_at: the time of {table.form} has one")
    _check_placeholder(table)
    found = {_contract(key): place for key, place in places.items()}
    if parent is not None:
        found[_PARENT] = _field("parent", parent)
    return Envelope(
        table.form,
        tuple(found.items()),
        tuple(types.items()),
        table.time_unit,
        table.client,
        placeholder=table.unavailable_value_placeholder,
    )


def _check_placeholder(table: _EnvelopeTable) -> None:
    placeholder = table.unavailable_value_placeholder
    if placeholder is None:
        return
    if table.form is not EnvelopeForm.DEBEZIUM:
        raise KindsError(
            'envelope: unavailable_value_placeholder: is for form = "debezium" only. Leave it out'
        )
    digits = placeholder.removeprefix("hex:")
    if digits != placeholder and not _OCTETS.fullmatch(digits):
        raise KindsError(
            "envelope: unavailable_value_placeholder: after hex: there are pairs of hexadecimal "
            'digits, as in the setting of the connector: "hex:FF"'
        )


def _places(table: _EnvelopeTable, preset: _Preset) -> dict[str, str]:
    """By the keys of the file, where the fields are."""
    places = dict(preset.places)
    for key in ("id", "version", "type", "updated_at", "client_id", "author", "data"):
        value = getattr(table, key)
        if value is None:
            continue
        if key in preset.fixed:
            raise KindsError(f"envelope: {key}: is decided by {table.form}. Leave it out")
        places[key] = "" if key == "data" and not value else _field(f"envelope: {key}", value)
    for key in preset.required:
        if key not in places and getattr(table, key) is None:
            raise KindsError(f"envelope: {key}: is missing: {table.form} has none of its own")
    if table.client is not None:
        if table.client_id is not None:
            raise KindsError("envelope: client: is declared together with client_id. Remove one")
        places.pop("client_id", None)
    return places


def _contract(key: str) -> str:
    """The contract's name of a key: `updatedAt` of `updated_at`."""
    first, *rest = key.split("_")
    return first + "".join(each.title() for each in rest)


def _field(where: str, place: str) -> str:
    """The name of a field, or a pointer, as a pointer."""
    return _pointer(where, as_pointer(place))


def _pointer(where: str, value: str) -> str:
    """A JSON pointer into a document. Raises KindsError."""
    if not value.startswith("/"):
        raise KindsError(f'{where}: must be a JSON pointer, which begins with a slash: "/number"')
    if _ESCAPE.search(value):
        raise KindsError(f'{where}: "{value}" is no JSON pointer: write ~ as ~0 and / as ~1')
    if "" in segments(value):
        raise KindsError(f'{where}: "{value}" has an empty name: a JSON pointer is "/a/b"')
    return value
