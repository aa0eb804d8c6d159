"""Reads the file of kinds: the shipped one, or that of ANNALS_ENTITIES_FILE."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from history.kinds import one
from history.kinds.kind import Entity
from history.kinds.table import KindsError, Table

VARIABLE: Final = "ANNALS_ENTITIES_FILE"
SHIPPED: Final = Path(__file__).parents[1] / "kinds.toml"
SEE: Final = "See docs/kinds.md."
DEFAULT: Final = "default"


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
    return _kinds(_parsed(SHIPPED), ())


def read(path: Path) -> tuple[Entity, ...]:
    """The kinds that a file declares, after the shipped ones if it extends these. Raises
    KindsError."""
    return _kinds(_parsed(path), shipped())


def _parsed(path: Path) -> Table:
    try:
        text = path.read_bytes().decode()
        return Table(tomllib.loads(text), str(path))
    except OSError as error:
        raise KindsError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise KindsError(f"{path}: line {line} is not UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise KindsError(f"{path} is not TOML: {error}.") from None
    except RecursionError:
        raise KindsError(f"{path} is not TOML that can be read: it is nested too deep.") from None


def _kinds(file: Table, base: Sequence[Entity]) -> tuple[Entity, ...]:
    """base: the shipped kinds; empty while these are read."""
    extends = file.one_of("extends", [DEFAULT], "") if file.given("extends") else ""
    tables = file.tables("kind")
    file.done()
    if not tables:
        raise file.error("", "declares no kind. Write one [[kind]] for each.")
    own = tuple(one.kind(values, file.file, number) for number, values in enumerate(tables, 1))
    kinds = (*(base if extends else ()), *own)
    _check_together(file, kinds)
    for kind in own:
        _check_shipped(file, kind, base)
    return kinds


def _check_together(file: Table, kinds: Sequence[Entity]) -> None:
    names: set[str] = set()
    topics: dict[str, str] = {}
    for kind in kinds:
        place = f'kind "{kind.name}"'
        if kind.name in names:
            raise file.error(
                f"{place}: name", "is declared twice. Each kind, and its table, is there once."
            )
        names.add(kind.name)
        for topic in kind.topics:
            if topic in topics:
                raise file.error(
                    f"{place}: topic",
                    f'"{topic}" is a topic of kind "{topics[topic]}" too. A topic has messages of '
                    "one kind.",
                )
            topics[topic] = kind.name
    main = [kind.name for kind in kinds if kind.root]
    if len(main) > 1:
        raise file.error(
            f'kind "{main[1]}": main', f'kind "{main[0]}" is the main kind already. One kind is.'
        )
    child = next((kind for kind in kinds if kind.parent is not None), None)
    if child is not None and not main:
        raise file.error(
            f'kind "{child.name}": parent',
            "there is no main kind that could be its parent. Declare one kind with main = true, or "
            "leave parent out: then the kind stands alone.",
        )


def _check_shipped(file: Table, kind: Entity, base: Sequence[Entity]) -> None:
    """A kind with the name of a shipped one has its table."""
    same = next((each for each in base if each.name == kind.name), None)
    if same is None or (same.parent is None) is (kind.parent is None):
        return
    must = "needs" if same.parent is not None else "cannot have"
    raise file.error(
        f'kind "{kind.name}": parent',
        f"this name and its table come with Annals, and the kind {must} a parent there. Use "
        "another name.",
    )
