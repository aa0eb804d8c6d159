"""`annals partitions maintain`: runs the night (nightly.py), and prints what its steps did."""

import json
import sys
from collections import Counter

from django.core.management.base import CommandError

from annals.management.partitions.call import PartitionsCall, format_sentence
from annals.management.partitions.listing import show_plan
from annals.management.partitions.nightly import DropExceptions, NightReport, run_night
from history.common.text_tables import pluralize
from history.management.progress import show_progress
from history.retention.partition_output import format_size
from history.retention.plan import DayChange


def maintain_days(call: PartitionsCall) -> int:
    """Run the night, or with --dry-run print its plan, and return the exit code."""
    options = call.options
    if options["dry_run"]:
        return show_plan(call)
    if options["accept_changed"] and not options["why"]:
        raise CommandError("--accept-changed needs --why: the access journal records the reason")

    def report_change(change: DayChange) -> None:
        if options["each"] and change.error is None and not options["json"]:
            call.stdout.write(
                f"{change.action} {change.partition.full_name}: {change.partition.reason}"
            )

    exceptions = DropExceptions(
        force=options["force"],
        without_archive=options["without_archive"],
        accept_changed=options["accept_changed"],
        reason=options["why"],
    )
    with show_progress("create, archive, drop, seal, pack, days", None, sys.stderr) as advance:
        report = run_night(exceptions, report_change, report_progress=advance)
    if options["json"]:
        _print_json(call, report)
    else:
        _print_summary(call, report)
    return report.result.exit_code


def _print_json(call: PartitionsCall, report: NightReport) -> None:
    archived = {
        "days": len(report.archived),
        "tableBytes": sum(manifest.table_bytes for manifest in report.archived),
        "fileBytes": sum(manifest.file_bytes for manifest in report.archived),
    }
    answer = {
        **report.result.as_object(),
        "archived": archived,
        "seconds": round(report.seconds, 3),
    }
    call.stdout.write(json.dumps(answer))


def _print_summary(call: PartitionsCall, report: NightReport) -> None:
    result, write = report.result, call.stdout.write
    for name in result.busy:
        write(f"{name}: locked by an open transaction, left for the next run")
    for name in result.held:
        write(f"{name}: held, see `partitions plan`; --force drops it")
    for name, error in result.broken:
        write(f"{name}: {error}")
    if result.packing_waits:
        write(format_sentence(result.packing_waits))
    reasons = Counter((unsealed.table, unsealed.reason) for unsealed in result.unsealed)
    for (table, reason), count in reasons.items():
        write(f"{table}: {pluralize(count, 'day')} not sealed: {reason}")
    if report.archived:
        table_bytes = sum(manifest.table_bytes for manifest in report.archived)
        file_bytes = sum(manifest.file_bytes for manifest in report.archived)
        write(
            f"Archived {pluralize(len(report.archived), 'day')}: "
            f"{format_size(table_bytes)} in tables, "
            f"{format_size(file_bytes)} in Parquet, ratio {file_bytes / table_bytes:.3f}."
        )
    write(
        f"Created {len(result.created)}, dropped {len(result.dropped)} "
        f"({format_size(result.freed)}), sealed {len(result.sealed)}, "
        f"packed {len(result.packed)}, "
        f"held {len(result.held)}, busy {len(result.busy)}, "
        f"broken {len(result.broken)}, in {report.seconds:.1f} s."
    )
    if result.dropped:
        write(f"The longest detach took {result.longest_detach:.3f} s.")
    if result.search_keys_removed or result.quarantine_removed:
        write(
            "Older than retention and removed: "
            f"{pluralize(result.search_keys_removed, 'search key')}, "
            f"{pluralize(result.quarantine_removed, 'message')} in quarantine."
        )
