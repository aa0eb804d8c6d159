"""`python -m tests.upgrade`: an upgrade under load, forward and back; ends with 1 if it fails.

Takes the earlier release out of the repository with `git archive`.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.consuming import ROOT, complete, until
from tests.messages import NOW
from tests.upgrade import earlier, packing
from tests.upgrade.stand import Stand, stand

CONSUMERS = 2
RATE = 300


def upgrade(stand: Stand, seconds: float) -> None:
    """Migrate under load, then replace the processes one by one, and back again."""
    new = earlier.migrations(ROOT) - earlier.migrations(stand.earlier)
    print(f"{len(new)} migrations", flush=True)
    phase = partial(stand.phase, say=partial(print, flush=True), seconds=seconds)
    with ExitStack() as stack:
        running = [stand.start(stand.earlier) for _ in range(CONSUMERS)]
        stand.feed.dates = [NOW, packing.OLD]
        stack.enter_context(stand.feed.pouring(RATE))
        until(lambda: stand.database.read() > 2 * RATE, "nothing is read")
        stack.enter_context(stand.watched())
        with stand.serving(stand.earlier):
            with phase("before"):
                pass
            with phase("migrate, grants --apply"):
                stand.tables(ROOT)
            for root in (stand.earlier, ROOT, stand.earlier, ROOT):
                release = "this" if root is ROOT else "the earlier"
                with phase(f"consumers, one by one, of {release} release"):
                    for place in range(CONSUMERS):
                        running[place].terminate(10)
                        running[place] = stand.start(root)
                        time.sleep(seconds)
            did = packing.maintain(stand)
            if did["packed"] or not did["packing_waits"]:
                stand.faults.append(f"packed while the web of the earlier release runs: {did}")
        with phase("web of this release"), stand.serving(ROOT):
            time.sleep(seconds)
            with phase("maintain packs"):
                if not packing.maintain(stand)["packed"]:
                    stand.faults.append("maintain packs nothing though no earlier process runs")
            with phase("unpack --all, before the way back"):
                stand.manage(ROOT, "partitions", "unpack", "--all")
        with (
            phase("web of the earlier release again"),
            stand.serving(stand.earlier, "/healthz"),
        ):
            time.sleep(seconds)
    until(lambda: stand.database.read() == stand.feed.produced.total(), running[0].said, 120)
    for each in running:
        each.terminate(10)
    complete(stand.consumers, stand.database, stand.feed)
    print(f"{stand.feed.produced.total()} messages produced, each stored once; the ledger adds up")


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
        root = earlier.unpack(options.earlier, folder / "earlier")
        with stand(folder / "stand", options.broker, root) as made:
            upgrade(made, options.seconds)
    except earlier.NoEarlierRelease as why:
        print(f"skipped: {why}")
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for each in made.faults:
        print(f"WRONG  {each}")
    return 1 if made.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
