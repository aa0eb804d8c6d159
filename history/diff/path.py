"""Pointers: RFC 6901, and key paths, which name list items by `[field=value]`. There `~2` is a `[`
at the start of an object's key, `~3` a `=` in a key field's name, `~4` a key `*`."""


def escape(key: str) -> str:
    """An object's key as a segment of an RFC 6901 pointer."""
    if "~" in key or "/" in key:
        return key.replace("~", "~0").replace("/", "~1")
    return key


def split(pointer: str) -> list[str]:
    """The escaped segments of a pointer or key path; ValueError if it does not start with /."""
    if not pointer:
        return []
    if pointer[0] != "/":
        raise ValueError(f"a path starts with a slash: {pointer!r}")
    return pointer[1:].split("/")


def name_key(segment: str) -> str:
    """The key path segment for an object's key; takes the key as an escaped pointer segment."""
    if segment == "*":
        return "~4"
    if segment[:1] == "[":
        return "~2" + segment[1:]
    return segment


def name_item(field: str, value: str) -> str:
    """The segment of a key path for the list item whose key field has this value."""
    return f"[{escape(field).replace('=', '~3')}={escape(value)}]"


def unescape(segment: str) -> str:
    """The plain text of a segment of a pointer or key path."""
    if "~" not in segment:
        return segment
    for code, sign in (("~1", "/"), ("~2", "["), ("~3", "="), ("~4", "*"), ("~0", "~")):
        segment = segment.replace(code, sign)
    return segment
