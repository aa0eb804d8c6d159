"""Pointers: RFC 6901, and the same with list items named by their key.

A key path is a pointer whose segment for an item of a keyed list is `[field=value]`. Beyond
`~0` (~) and `~1` (/) it writes `~2` for a `[` that begins an object's key, `~3` for a `=` in a
key field's name and `~4` for an object's key that is `*` alone, so that it reads one way only.
"""


def escape(key: str) -> str:
    """An object's key as a segment of an RFC 6901 pointer."""
    if "~" in key or "/" in key:
        return key.replace("~", "~0").replace("/", "~1")
    return key


def split(pointer: str) -> list[str]:
    """The escaped segments of a pointer or key path; ValueError if it lacks the first slash."""
    if not pointer:
        return []
    if pointer[0] != "/":
        raise ValueError(f"a path starts with a slash: {pointer!r}")
    return pointer[1:].split("/")


def name_key(segment: str) -> str:
    """An escaped segment that stands for an object's key, as a segment of a key path."""
    if segment == "*":
        return "~4"
    if segment[:1] == "[":
        return "~2" + segment[1:]
    return segment


def name_item(field: str, value: str) -> str:
    """The segment of a key path for the list item whose key field has this value."""
    return f"[{escape(field).replace('=', '~3')}={escape(value)}]"


def unescape(segment: str) -> str:
    """The text behind a segment of a pointer or key path."""
    if "~" not in segment:
        return segment
    for code, sign in (("~1", "/"), ("~2", "["), ("~3", "="), ("~4", "*"), ("~0", "~")):
        segment = segment.replace(code, sign)
    return segment
