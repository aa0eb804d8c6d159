"""`python -m tests.upgrade`: an upgrade under load, forward and back. Ends with 1 if it fails.

The code of the earlier release comes from the repository, with `git archive`.
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

from tests.consuming import ROOT, assert_complete, wait_until
from tests.messages import NOW
from tests.upgrade import earlier, packing
from tests.upgrade.stand import UpgradeStand, create_stand

CONSUMERS = 2
RATE = 300


def run_upgrade(stand: UpgradeStand, seconds: float) -> None:
    """Migrate under load, replace the processes one by one, and go back to the earlier release."""
    new_migrations = earlier.list_migrations(ROOT) - earlier.list_migrations(stand.earlier)
    print(f"{len(new_migrations)} migrations", flush=True)
    phase = partial(stand.run_phase, print_progress=partial(print, flush=True), seconds=seconds)
    with ExitStack() as stack:
        running = [stand.start_consumer(stand.earlier) for _ in range(CONSUMERS)]
        stand.feed.dates = [NOW, packing.FINISHED_DAY]
        stack.enter_context(stand.feed.send_in_background(RATE))
        wait_until(lambda: stand.database.count_read() > 2 * RATE, "nothing is read")
        stack.enter_context(stand.watch_answers())
        with stand.serve_web(stand.earlier):
            with phase("before"):
                pass
            with phase("migrate, grants --apply"):
                stand.prepare_tables(ROOT)
            for root in (stand.earlier, ROOT, stand.earlier, ROOT):
                release = "this" if root is ROOT else "the earlier"
                with phase(f"consumers, one by one, of {release} release"):
                    for place in range(CONSUMERS):
                        running[place].terminate(10)
                        running[place] = stand.start_consumer(root)
                        time.sleep(seconds)
            maintain_result = packing.run_maintain(stand)
            if maintain_result["packed"] or not maintain_result["packing_waits"]:
                stand.faults.append(
                    f"packed while the web of the earlier release runs: {maintain_result}"
                )
        with phase("web of this release"), stand.serve_web(ROOT):
            time.sleep(seconds)
            with phase("maintain packs"):
                if not packing.run_maintain(stand)["packed"]:
                    stand.faults.append("maintain packs nothing though no earlier process runs")
            with phase("unpack --all, before the way back"):
                stand.run_command(ROOT, "partitions", "unpack", "--all")
        with (
            phase("web of the earlier release again"),
            stand.serve_web(stand.earlier, "/healthz"),
        ):
            time.sleep(seconds)
    wait_until(
        lambda: stand.database.count_read() == stand.feed.produced.total(), running[0].read_log, 120
    )
    for consumer in running:
        consumer.terminate(10)
    assert_complete(stand.consumers, stand.database, stand.feed)
    print(f"{stand.feed.produced.total()} messages produced, each stored once; the ledger adds up")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    add = parser.add_argument
    add(
        "--earlier",
        default=earlier.DEFAULT,
        metavar="REFERENCE",
        help="a tag or commit of the repository (default: %(default)s)",
    )
    add(
        "--broker",
        choices=("apache", "embedded"),
        default="apache",
        help="apache needs Java and Maven (default: %(default)s)",
    )
    add("--seconds", type=float, default=5, help="length of each phase (default: %(default)s)")
    options = parser.parse_args(arguments)
    # With this handler SIGTERM ends the run through `finally`, which stops the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Not inside a folder that only one user may enter: PostgreSQL may run as another user.
    folder = Path(tempfile.mkdtemp(prefix="annals-upgrade-"))
    folder.chmod(0o755)
    try:
        root = earlier.unpack_release(options.earlier, folder / "earlier")
        with create_stand(folder / "stand", options.broker, root) as stand:
            run_upgrade(stand, options.seconds)
    except earlier.EarlierReleaseNotFoundError as error:
        print(f"skipped: {error}")
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for fault in stand.faults:
        print(f"WRONG  {fault}")
    return 1 if stand.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
