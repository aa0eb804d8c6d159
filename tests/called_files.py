"""Which files of ours a piece of work goes through, in the order of their first call.

`python -m tests.called_files SINCE COMMAND...` runs a command of manage.py and prints them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(f"{ROOT / package}{os.sep}" for package in ("annals", "history", "ingest"))


@contextmanager
def called_files(since: str = "") -> Iterator[list[str]]:
    """The files, relative to the root, as they are called inside the block, in all threads. since:
    forget what was called before the first call of this file."""
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(OURS) or name in files or imported(frame):
            return
        if files or name.endswith(since):
            files[name] = None

    found: list[str] = []
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        found += [str(Path(name).relative_to(ROOT)) for name in files]


def imported(frame: FrameType | None) -> bool:
    """Whether the frame only runs because a module of ours is imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(OURS):
            return True
        frame = frame.f_back
    return False


def documented(heading: str) -> list[str]:
    """The files in the table under a heading of docs/structure.md, in their order."""
    page = (ROOT / "docs/structure.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE)


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    from django.core.management import call_command

    since, *command = sys.argv[1:]
    with called_files(since) as found:
        call_command(*command)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
