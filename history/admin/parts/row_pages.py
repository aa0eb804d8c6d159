"""Links between the pages of a long table; `?after=` is how many rows the pages before have."""

import re

AFTER = "after"
# A page takes about a millisecond for each row. A small document can have thousands of changes.
MOST_ROWS = 1000


def start_of(after: str, count: int) -> int:
    """The place of the first row of the page; 0 for what is no place in this table."""
    start = int(after) if re.fullmatch(r"[0-9]{1,9}", after) else 0
    return start if start < count else 0


def row_pages(address: str, start: int, count: int, text: str) -> dict[str, str]:
    """range_text, next_url and previous_url, as far as there are other pages. text: says which rows
    these are, with {first}, {last} and {count}."""
    end = min(start + MOST_ROWS, count)
    found: dict[str, str] = {}
    if end - start < count:
        found["range_text"] = text.format(first=start + 1, last=end, count=count)
    if end < count:
        found["next_url"] = after(address, end)
    if start:
        before = max(0, start - MOST_ROWS)
        found["previous_url"] = after(address, before) if before else address
    return found


def after(address: str, start: int) -> str:
    """The address of the page that begins with this row."""
    return f"{address}{'&' if '?' in address else '?'}{AFTER}={start}"
