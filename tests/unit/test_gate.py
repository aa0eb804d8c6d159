"""One gate: the contract in pyproject.toml finds whoever reads a source past it."""

import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.protected import ProtectedContract

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETTINGS: dict[str, Any] = PYPROJECT["tool"]["importlinter"]
PACKAGES = SETTINGS["root_packages"]


KINDS = {"forbidden": ForbiddenContract, "protected": ProtectedContract}


def contract(name: str) -> ForbiddenContract | ProtectedContract:
    """The one whose name begins so."""
    [found] = [each for each in SETTINGS["contracts"] if each["name"].startswith(name)]
    made = KINDS[found["type"]]
    return made(found["name"], {"root_packages": PACKAGES}, _options(found))


def _options(found: dict[str, Any]) -> dict[str, Any]:
    """In the form that import-linter gives a contract: words for true and false."""
    return {
        key: str(value) if isinstance(value, bool) else value
        for key, value in found.items()
        if key not in ("name", "type")
    }


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    configuration.configure()
    return grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize(
    ("name", "importer", "imported"),
    [
        ("One gate", "history.timeline.values", "history.timeline.sources.tables"),
        ("One gate", "history.timeline.states", "history.timeline.sources.old_service"),
        ("One gate", "history.api.views", "history.timeline.sources.archive"),
        ("One gate", "history.admin.parts.found", "history.timeline.sources.lists"),
        ("One gate", "annals.management.comparing", "history.timeline.sources.merged"),
        ("Sources know", "history.timeline.sources.tables", "history.masking"),
        ("Sources know", "history.timeline.sources.tables", "history.timeline.reading"),
    ],
)
def test_a_way_around_the_gate_breaks_the_contract(
    graph: grimp.ImportGraph, name: str, importer: str, imported: str
) -> None:
    assert contract(name).check(deepcopy(graph), verbose=False).kept
    around = deepcopy(graph)
    around.add_import(importer=importer, imported=imported)
    assert not contract(name).check(around, verbose=False).kept
