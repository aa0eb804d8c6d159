"""Names the values that would be valid where msgspec found a mistake in a declaration."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import inspect

_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")
_ENUM: Final = re.compile(r"Invalid enum value (?:'([^']*)'|(\S+))")
_PATH: Final = re.compile(r" - at `\$([^`]*)`")
# A step of the path to a mistake: `.name` into a field, `[0]` into a list, `[...]` into a dict.
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name among `names` that a misspelt `name` probably means, or None."""
    matches = get_close_matches(name, list(names), 1)
    return matches[0] if matches else None


def explain_valid_values(
    error: msgspec.ValidationError, shape: Any, declared: Any = None
) -> str | None:
    """Return the names or values that would be valid in place of the wrong one in `error`.

    Args:
        error: The error with which msgspec refused a declaration.
        shape: The type that the declaration must have.
        declared: The declaration as dicts, lists and scalars, or None if it is not known. It is
            needed if the type has a dict, because msgspec does not say which key has the mistake.

    Returns:
        Sentences without the last period. None if there is nothing to add to the error.
    """
    text = str(error)
    path = _PATH.search(text)
    steps = list(_split_steps(path[1] if path else ""))
    types, key = _follow_steps([inspect.type_info(shape)], steps, declared)
    if (match := _UNKNOWN.search(text)) is not None:
        fields = [f.encode_name for t in types for f in getattr(t, "fields", ())]
        return _list_choices(match[1], fields, "The valid ones are")
    if (match := _ENUM.search(text)) is not None:
        valid = [str(value) for t in types for value in _list_values(t)]
        choices = _list_choices(match[1] or match[2], valid, "It must be one of")
        return choices if key is None or choices is None else f'The key is "{key}". {choices}'
    return None


def _list_choices(name: str, valid: list[str], introduction: str) -> str | None:
    if not valid:
        return None
    nearest = find_nearest(name, valid)
    question = f"Did you mean {nearest}? " if nearest is not None else ""
    return f"{question}{introduction} {', '.join(valid)}"


def _split_steps(path: str) -> Iterator[str]:
    for name, index in _STEP.findall(path):
        yield name or f"[{index}]"


def _follow_steps(
    types: list[inspect.Type], steps: list[str], declared: Any
) -> tuple[list[inspect.Type], str | None]:
    """Return the types that are allowed where msgspec found a mistake in a decoded value.

    Args:
        types: The types that are allowed at the root of the value.
        steps: The path from the root to the mistake. See _STEP.
        declared: The whole value, or None if it is not known.

    Returns:
        1. The types.
        2. The dict key with the mistake in its value. If dicts are nested, the key of the innermost
           dict. None if the mistake is not in a dict, or the key is not known.
    """
    key = None
    types = list(_flatten(types))
    for step in steps:
        inner: list[inspect.Type] = []
        value = None
        for kind in types:
            if isinstance(kind, inspect.StructType) and not step.startswith("["):
                inner += [field.type for field in kind.fields if field.encode_name == step]
                value = declared.get(step) if isinstance(declared, dict) else None
            elif isinstance(kind, inspect.DictType) and step == "[...]":
                inner.append(kind.value_type)
                if (bad_key := _find_bad_key(kind, declared)) is not None:
                    key, value = bad_key, declared[bad_key]
            elif isinstance(kind, inspect.VarTupleType | inspect.ListType) and step[1:2].isdigit():
                inner.append(kind.item_type)
                index = int(step[1:-1])
                if isinstance(declared, list) and index < len(declared):
                    value = declared[index]
        types, declared = list(_flatten(inner)), value
    return types, key


def _flatten(types: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    """Yield `types` with each union and each inspect.Metadata replaced by the types inside it."""
    for kind in types:
        if isinstance(kind, inspect.UnionType):
            yield from _flatten(kind.types)
        elif isinstance(kind, inspect.Metadata):
            yield from _flatten([kind.type])
        else:
            yield kind


def _find_bad_key(kind: inspect.DictType, declared: Any) -> str | None:
    """Return the first key with a value that is not one of the valid values, or None."""
    if not isinstance(declared, dict):
        return None
    for key, value in declared.items():
        for inner in _flatten([kind.value_type]):
            valid = [*_list_values(inner)]
            if valid and value not in valid:
                return str(key)
    return None


def _list_values(kind: inspect.Type) -> Iterable[Any]:
    if isinstance(kind, inspect.LiteralType):
        return kind.values
    if isinstance(kind, inspect.EnumType):
        return [member.value for member in kind.cls]
    return ()
