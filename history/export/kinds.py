"""The names of the formats of an export; history.export.formats has what writes them."""

from __future__ import annotations

from typing import Final

JSONL: Final = "jsonl"
PARQUET: Final = "parquet"
AVRO: Final = "avro"
KINDS: Final = (JSONL, PARQUET, AVRO)
