"""Reads the declaration of a kind's envelope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from history.json_pointer import as_pointer
from history.kinds.kind import Envelope, EnvelopeForm
from history.kinds.table import Table

UNITS: Final = ("s", "ms", "us", "ns")
CHANGES: Final = ("CREATE", "UPDATE", "DELETE")
PLACE_LENGTH: Final = 200
CLIENT_LENGTH: Final = 64
VALID_PLACE: Final = 'a field, or a JSON pointer: "/meta/version"'
PARENT: Final = "productInstanceId"
# The keys of places, and the contract's names.
FIELDS: Final = {
    "id": "id",
    "version": "version",
    "type": "type",
    "updated_at": "updatedAt",
    "client_id": "clientId",
    "author": "author",
    "data": "data",
}
# Where the fields are if nothing else is declared. What is not here must be declared or is absent.
_USUAL: Final[Mapping[EnvelopeForm, Mapping[str, str]]] = {
    EnvelopeForm.PLAIN: {key: f"/{name}" for key, name in FIELDS.items()},
    EnvelopeForm.CLOUDEVENTS: {
        "id": "/subject",
        "type": "/type",
        "updated_at": "/time",
        "client_id": "/source",
        "data": "/data",
    },
    EnvelopeForm.DEBEZIUM: {"id": "/id", "version": "/version"},
}
_REQUIRED: Final = ("id", "version", "type", "updated_at", "data")
# Debezium says itself what changed, and the document is the row. The time and the source are those
# of Debezium where the row has none.
_OF_DEBEZIUM: Final = {"c": "CREATE", "r": "UPDATE", "u": "UPDATE", "d": "DELETE"}
_OF_CONTRACT: Final = {
    **{each: each for each in CHANGES},
    **{str(number): each for number, each in enumerate(CHANGES)},
}
# The keys that a form decides itself.
_FIXED: Final[Mapping[EnvelopeForm, tuple[str, ...]]] = {
    EnvelopeForm.PLAIN: (),
    EnvelopeForm.CLOUDEVENTS: ("data",),
    EnvelopeForm.DEBEZIUM: ("type", "data"),
}


def envelope(kind: Table, parent: str | None) -> Envelope | None:
    """The envelope that a kind declares, None if none. parent: the field that names the parent.
    Raises KindsError."""
    table = kind.table("envelope", 'form = "plain", "cloudevents" or "debezium", and where is what')
    if table is None:
        return None
    form = EnvelopeForm(table.one_of("form", [*EnvelopeForm], EnvelopeForm.PLAIN))
    debezium = form is EnvelopeForm.DEBEZIUM
    places = dict(_USUAL[form])
    for key in FIELDS:
        if key in _FIXED[form]:
            continue
        whole = key == "data" and table.given(key) and table.value(key) == ""
        given = "" if whole else table.optional(key, VALID_PLACE, PLACE_LENGTH)
        if given is not None:
            places[key] = as_pointer(given)
            table.pointer(key, places[key], whole=key == "data")
    for key in _REQUIRED:
        if key not in places and not (debezium and key != "version"):
            raise table.error(key, f"is missing: {VALID_PLACE}.")
    client = table.optional("client", "the clientId of all messages", CLIENT_LENGTH)
    if client is not None and table.given("client_id"):
        raise table.error("client", "is declared together with client_id. Only one of them can be.")
    if client is not None:
        places.pop("client_id", None)
    unit = table.one_of("time_unit", UNITS) if table.given("time_unit") else None
    if debezium and unit is not None and "updated_at" not in places:
        raise table.error("time_unit", "needs updated_at: Debezium's own time has a unit.")
    types = _types(table, form)
    table.done()
    found = {FIELDS[key]: place for key, place in places.items()}
    if parent is not None:
        found[PARENT] = as_pointer(parent)
    return Envelope(form, tuple(found.items()), tuple(types.items()), unit, client)


def _types(table: Table, form: EnvelopeForm) -> dict[str, str]:
    """By its spelling in the messages, the contract's type of change."""
    usual = _OF_DEBEZIUM if form is EnvelopeForm.DEBEZIUM else _OF_CONTRACT
    given = table.table("types", 'words of the messages: { "order.created" = "CREATE" }')
    if given is None:
        if form is EnvelopeForm.CLOUDEVENTS:
            raise table.error(
                "types", 'is missing: which type of event is which: { "order.new" = "CREATE" }.'
            )
        return dict(usual)
    found = {word: given.one_of(word, CHANGES) for word in given.items()}
    if not found:
        raise given.error("", 'is empty: { "order.created" = "CREATE" }.')
    if form is EnvelopeForm.DEBEZIUM:
        unknown = next((word for word in found if word not in _OF_DEBEZIUM), None)
        if unknown is not None:
            raise given.error(unknown, "is no op of Debezium's with a row: c, r, u and d are.")
        return {**usual, **found}
    return found
