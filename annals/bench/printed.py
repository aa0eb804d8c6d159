"""The JSON that every benchmark prints: a common head, and figures of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def print_json(bench: str, figures: Mapping[str, Any], met: bool | None = None) -> None:
    """bench: its name. figures: docs/performance.md describes them. met: whether they are within
    the limits that decide the exit code; None where there are none."""
    said = {"bench": bench, "met": met, "figures": figures}
    sys.stdout.write(json.dumps(said) + "\n")
