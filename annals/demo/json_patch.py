"""Applies RFC 6902 patches. Independent of history.diff, because it checks its results."""

from copy import deepcopy
from typing import Any


def apply(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The document after the operations; the given one is not changed. Raises LookupError or
    ValueError if an operation cannot be applied."""
    root = {"": deepcopy(document)}
    for operation in operations:
        path = _path(operation["path"])
        match operation["op"]:
            case "add":
                _add(root, path, deepcopy(operation["value"]))
            case "remove":
                _take(root, path)
            case "replace":
                _take(root, path)
                _add(root, path, deepcopy(operation["value"]))
            case "move":
                _add(root, path, _take(root, _path(operation["from"])))
            case "copy":
                _add(root, path, deepcopy(_at(root, _path(operation["from"]))))
            case "test":
                if _at(root, path) != operation["value"]:
                    raise ValueError(f"{operation['path']} is another value")
            case other:
                raise ValueError(f"{other} is not an operation")
    return root[""]


def _path(pointer: str) -> list[str]:
    """The steps from the object that holds the document under its only key, ""."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]


def _step(holder: Any, step: str) -> Any:
    return holder[int(step)] if isinstance(holder, list) else holder[step]


def _at(root: Any, path: list[str]) -> Any:
    for step in path:
        root = _step(root, step)
    return root


def _add(root: Any, path: list[str], value: Any) -> None:
    holder = _at(root, path[:-1])
    if not isinstance(holder, list):
        holder[path[-1]] = value
        return
    place = len(holder) if path[-1] == "-" else int(path[-1])
    if not 0 <= place <= len(holder):
        raise IndexError(f"no place {place} in a list of {len(holder)}")
    holder.insert(place, value)


def _take(root: Any, path: list[str]) -> Any:
    holder = _at(root, path[:-1])
    return holder.pop(int(path[-1]) if isinstance(holder, list) else path[-1])
