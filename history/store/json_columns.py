"""Encodes many rows as the parameters of one statement."""

from collections.abc import Iterable, Sequence

import msgspec


def encode_columns(columns: Iterable[Sequence[object]]) -> list[str]:
    """Return each column as one JSON array, for `json_array_elements_text`.

    JSON arrays are cheaper to build and to parse than SQL arrays or rows.
    """
    return [msgspec.json.encode(column).decode() for column in columns]
