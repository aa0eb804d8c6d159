"""Which removed item of a list without keys became which added one."""

from collections.abc import Iterator

from history.exactjson import Json


def pair_up(left: list[Json], came: list[Json]) -> Iterator[tuple[int, int]]:
    """Index pairs, both ascending."""
    return zip(range(len(left)), range(len(came)), strict=False)
