"""`python -m tests.upgrade`: an upgrade under load, in both directions; ends with 1 if it fails.

Takes the earlier release out of the repository with `git archive`.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.upgrade import earlier
from tests.upgrade.scenes import (
    SESSION_S,
    Scene,
    earlier_code_on_new_tables,
    this_code_on_old_tables,
)
from tests.upgrade.stand import stand
from tests.upgrade.watch import Watch


def faults(watch: Watch) -> list[str]:
    """What a user would complain about."""
    found = [
        f"{name}: {count} answers with status {status}: {watch.bodies.get(status, '')}"
        for name, statuses in watch.statuses.items()
        for status, count in statuses.items()
        if status != 200
    ]
    return found + [
        f"{name}: the group paused for {pauses.group:.1f} s, longer than its session"
        for name, pauses in watch.pauses.items()
        if pauses.group > SESSION_S
    ]


def run(
    folder: Path, reference: str, kind: str, seconds: float, say: Callable[[str], None] = print
) -> list[str]:
    """Both scenes. What is wrong, as sentences. Raises NoEarlierRelease."""
    root = earlier.unpack(reference, folder / "earlier")
    new = sorted(earlier.migrations(Path.cwd()) - earlier.migrations(root))
    say(f"from {reference}: {len(new)} migrations: {', '.join('.'.join(each) for each in new)}")
    say("## The earlier release on the tables of this one")
    with stand(folder / "one", kind, root) as made:
        watch = earlier_code_on_new_tables(Scene(made, say, seconds))
    say("## This release on the tables of the earlier one")
    with stand(folder / "two", kind, root) as made:
        this_code_on_old_tables(Scene(made, say, seconds))
    return faults(watch)


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    add = parser.add_argument
    add("--earlier", default=earlier.DEFAULT, metavar="REFERENCE",
        help="a tag or commit of the repository (default: %(default)s)")  # fmt: skip
    add("--broker", choices=("apache", "embedded"), default="apache",
        help="apache needs Java and Maven (default: %(default)s)")  # fmt: skip
    add("--seconds", type=float, default=5, help="of each phase (default: %(default)s)")
    options = parser.parse_args(given)
    # Servers end with it, also when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Not under another user's folder: PostgreSQL runs as a user of its own.
    folder = Path(tempfile.mkdtemp(prefix="annals-upgrade-"))
    folder.chmod(0o755)
    try:
        wrong = run(folder, options.earlier, options.broker, options.seconds)
    except earlier.NoEarlierRelease as why:
        print(f"skipped: {why}")
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for each in wrong:
        print(f"WRONG  {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
