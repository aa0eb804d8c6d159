"""Reads and writes the segments of RFC 6901 pointers and of key paths.

A key path is a pointer that names list items by `[field=value]`. Besides the escapes of a pointer
it has `~2` for a `[` at the start of an object's key, `~3` for a `=` in the name of a key field,
and `~4` for an object's key `*`.
"""


def escape_key(key: str) -> str:
    """Return the key of an object as a segment of an RFC 6901 pointer."""
    if "~" in key or "/" in key:
        return key.replace("~", "~0").replace("/", "~1")
    return key


def split_path(pointer: str) -> list[str]:
    """Return the escaped segments of a pointer or key path.

    Raises:
        ValueError: The path does not start with a slash.
    """
    if not pointer:
        return []
    if pointer[0] != "/":
        raise ValueError(f"a path must start with a slash: {pointer!r}")
    return pointer[1:].split("/")


def name_key(segment: str) -> str:
    """Convert a pointer segment that names a key of an object to a segment of a key path."""
    if segment == "*":
        return "~4"
    if segment[:1] == "[":
        return "~2" + segment[1:]
    return segment


def name_item(field: str, value: str) -> str:
    """Return the key path segment that names a list item by a field and the field's value."""
    return f"[{escape_key(field).replace('=', '~3')}={escape_key(value)}]"


def unescape_segment(segment: str) -> str:
    """Return the plain text of a segment of a pointer or key path."""
    if "~" not in segment:
        return segment
    for code, sign in (("~1", "/"), ("~2", "["), ("~3", "="), ("~4", "*"), ("~0", "~")):
        segment = segment.replace(code, sign)
    return segment
