"""Modules stay under 400 lines, functions under 60."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/sizes.py"


def test_modules_and_functions_are_short() -> None:
    spec = importlib.util.spec_from_file_location("sizes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    sizes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sizes)
    modules: dict[str, int] = sizes.modules(ROOT)
    assert len(modules) > 200
    assert {path: lines for path, lines in modules.items() if lines >= 400} == {}
    functions = dict(size for path in modules for size in sizes.functions(ROOT, path))
    assert len(functions) > 1000
    assert {name: lines for name, lines in functions.items() if lines >= 60} == {}
