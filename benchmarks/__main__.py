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
    # The simulated messages need the kinds that come with Annals.
    os.environ.pop("ANNALS_ENTITIES_FILE", None)
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
        description="Run a benchmark. Most also measure a baseline, such as bare SQL.",
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
        ("--rounds", 3, "how often COPY and the consumer are measured, in turn"),
    )
    add_bench(
        "timeline",
        "Measure timeline pages as SQL, as Python calls and over HTTP.",
        ("--rows", 5_000_000, "versions of applications over 90 days"),
        (
            "--parallel-seconds",
            60,
            "for how many seconds 16 clients read during ingest; 0: not at all",
        ),
    ).add_argument(
        "--cluster",
        default="",
        metavar="DSN",
        help="only compare a Citus cluster with one server, over 97 days and with a fiftieth of the"
        " rows; DSN names a database on its coordinator, with a superuser",
    )
    add_bench(
        "diff",
        "Measure the comparison of snapshots against DeepDiff and jsonpatch.",
        ("--messages", 20_000, "simulated messages whose versions are compared"),
    ).add_argument(
        "--real",
        default="",
        metavar="FILE",
        help="real versions to compare, as gzipped JSON lines with id, version and data",
    )
    add_bench(
        "pack",
        "Measure packed days next to plain ones: size, speed, reading.",
        ("--versions", 120_000, "versions in each day whose size is measured"),
    ).add_argument(
        "--cluster",
        default="",
        metavar="DSN",
        help="only compare packing on a Citus cluster with packing on one server; DSN names a"
        " database on its coordinator, with a superuser",
    )
    add_bench(
        "changes",
        "Measure lists of changes of all documents next to hand-written SQL.",
        ("--versions", 1_000_000, "versions in each of seven days"),
        ("--rounds", 200, "how often each list is requested"),
    ).add_argument(
        "--cluster",
        default="",
        metavar="DSN",
        help="only compare a Citus cluster with one server, with a fiftieth of the versions; DSN"
        " names a database on its coordinator, with a superuser",
    )
    add_bench(
        "pages",
        "Measure the time and size of the support screens, for usual and hard documents.",
        ("--rounds", 3, "how often each page is requested; the fastest time counts"),
    )
    add_bench(
        "start",
        "Measure how long commands, the web and the consumer take to start.",
        ("--rounds", 5, "how often each process is started"),
    )
    add_bench(
        "against",
        "Compare the processor time of API requests in this checkout and in another one.",
        ("--rounds", 5, "how often each checkout is measured, in turn"),
    ).add_argument("directory", metavar="DIR", help="the other checkout")
    return parser


if __name__ == "__main__":
    main()
