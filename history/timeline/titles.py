"""Makes titles for documents from fields such as fullName, name and brand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from history.documents.exactjson import Json
from history.kinds.entities import ROOT
from history.policy import masking
from history.store.versions import parse_snapshot
from history.timeline.reader import HistoryReader

HEADLINE_KEYS = ("fullName", "name", "title", "brand", "type")
NUMBER, MODEL = "number", "model"
MAX_LENGTH = 120


def fetch_application_titles(
    reader: HistoryReader, applications: Collection[str]
) -> dict[str, str]:
    """Return the titles of applications, as the viewer may see them. Runs at most one query.

    An application without a title, or without a snapshot in the store, is left out.
    """
    if ROOT is None or not applications:
        return {}
    reader = replace(
        reader.limit_to_fields((*HEADLINE_KEYS, NUMBER, MODEL)).hide_old_service(), damaged={}
    )
    rows = reader.policy.apply(
        reader.store_lists.fetch_newest_snapshots(ROOT, sorted(applications))
    )
    titles = {row.id: get_headline(parse_snapshot(row.data)) for row in rows}
    return {id: title for id, title in titles.items() if title}


def get_headline(data: object) -> str:
    """Return the title of a document, or an empty text if the fields for a title are missing.

    The title is the first text under HEADLINE_KEYS, followed by the field `number`. If the document
    has a field `brand` but no number, the field `model` follows instead. Masked texts are not used.

    Args:
        data: The parsed snapshot.
    """
    if not isinstance(data, dict):
        return ""
    name = next((text for key in HEADLINE_KEYS if (text := _get_text(data.get(key)))), "")
    extra = data.get(NUMBER) or (data.get(MODEL) if "brand" in data else None)
    return " ".join(part for part in (name, _get_text(extra)) if part)[:MAX_LENGTH]


def _get_text(value: Json) -> str:
    if isinstance(value, dict):
        value = next((text for text in value.values() if isinstance(text, str) and text), "")
    return value if isinstance(value, str) and not masking.is_token(value) else ""
