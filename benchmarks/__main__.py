"""`python -m benchmarks ingest|timeline|pages|diff|pack|changes|start|against`."""

import argparse
import os
import signal
import sys
from importlib import import_module


def main() -> None:
    options = vars(_make_parser().parse_args())
    name = options.pop("bench")
    # Exit on SIGTERM, so that the servers stop and the database is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.environ.pop("ANNALS_ENTITIES_FILE", None)  # the load needs the kinds that come with Annals
    if name != "diff":
        _start_django()
    sys.exit(import_module(f"benchmarks.{name}").run(**options))


def _start_django() -> None:
    """Set up Django. If DATABASE_URL is unset, start the embedded PostgreSQL."""
    import django

    from annals.web.start import prepare_environment

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    prepare_environment(["benchmarks"])
    django.setup()


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description="Run a benchmark next to a reference that is measured in the same run.",
    )
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")

    def add_bench(name: str, text: str, *numbers: tuple[str, int, str]) -> argparse.ArgumentParser:
        bench: argparse.ArgumentParser = benches.add_parser(name, help=text, description=text)
        bench.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        for option, default, meaning in numbers:
            bench.add_argument(
                option,
                type=int,
                default=default,
                metavar="N",
                help=f"{meaning} (default {default})",
            )
        return bench

    add_bench(
        "ingest",
        "Measure the consumer against bare COPY of the same rows.",
        ("--messages", 300_000, "messages in each run"),
        ("--rounds", 3, "measurements of COPY and consumer, in turn"),
    )
    add_bench(
        "timeline",
        "Measure timeline pages as SQL, as Python calls and over HTTP.",
        ("--rows", 5_000_000, "versions of applications over 90 days"),
        (
            "--parallel-seconds",
            60,
            "seconds for which 16 clients read during ingest; 0 = leave it out",
        ),
    ).add_argument(
        "--cluster",
        default="",
        metavar="DSN",
        help="compare a Citus cluster, whose coordinator this is, with one server: 97 days, a"
        " fiftieth of the rows",
    )
    add_bench(
        "diff",
        "Measure the comparison of snapshots against DeepDiff and jsonpatch.",
        ("--messages", 20_000, "simulated messages whose versions are compared"),
    ).add_argument(
        "--real",
        default="",
        metavar="FILE",
        help="gzipped JSON lines with id, version and data: real versions to compare",
    )
    add_bench(
        "pack",
        "Measure packed days next to plain ones: size, speed, reading.",
        ("--versions", 120_000, "versions in each day whose size is measured"),
    ).add_argument(
        "--cluster",
        default="",
        metavar="DSN",
        help="coordinator of a Citus cluster whose workers have joined, as a superuser: packing"
        " there next to one server",
    )
    add_bench(
        "changes",
        "Measure lists of changes of all documents next to hand-written SQL.",
        ("--versions", 1_000_000, "versions in each of seven days"),
        ("--rounds", 200, "how often each question is asked"),
    ).add_argument(
        "--cluster",
        default="",
        metavar="DSN",
        help="coordinator of a Citus cluster whose workers have joined, as a superuser: the same"
        " questions there next to one server, a fiftieth of the versions",
    )
    add_bench(
        "pages",
        "Measure the support screens of usual and hard documents: time and weight.",
        ("--rounds", 3, "requests of each page; the fastest counts"),
    )
    add_bench(
        "start",
        "Measure how long commands, the web and the consumer take to start.",
        ("--rounds", 5, "starts of each process"),
    )
    add_bench(
        "against",
        "Compare the processor time of reading with that of another checkout.",
        ("--rounds", 5, "runs of each of the two, in turn"),
    ).add_argument("directory", metavar="DIR", help="the other checkout")
    return parser


if __name__ == "__main__":
    main()
