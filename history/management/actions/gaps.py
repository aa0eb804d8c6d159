"""The action of `annals gaps`."""

import json
import sys
from dataclasses import asdict

from django.conf import settings
from django.core.management.base import BaseCommand

from history.common import clock
from history.common.plain_text import to_one_line
from history.common.text_tables import build_table, pluralize, print_table
from history.completeness.gaps import read
from history.completeness.gaps.run import find_gaps, get_latest_run
from history.management.progress import show_progress
from history.store.days.window import Window


def update_gaps(command: BaseCommand, *, as_json: bool) -> None:
    """Bring the gaps up to date and print the sums."""
    annals, out = settings.ANNALS, command.stdout
    window = Window.at(clock.now(), annals.retention_days, annals.ahead_days)
    with show_progress("days", None, sys.stderr) as advance:
        outcome = find_gaps(window, clock.now(), lambda: advance(1))
    sums, last_run = read.fetch_sums(), get_latest_run()
    quarantined = last_run.quarantined if last_run else 0
    gaps, versions = (
        sum(gap_sum.gaps for gap_sum in sums),
        sum(gap_sum.versions for gap_sum in sums),
    )
    if as_json:
        content = {
            **asdict(outcome),
            "seconds": round(outcome.seconds, 3),
            "gaps": gaps,
            "versions": versions,
            "quarantined": quarantined,
            "by": [gap_sum._asdict() for gap_sum in sums],
        }
        out.write(json.dumps(content))
        return
    if sums:
        names = ("entity", "service", "gaps", "versions missing")
        table = build_table(*names, right=names[2:])
        for gap_sum in sums:
            client = to_one_line(gap_sum.client_id)
            table.add_row(gap_sum.entity, client, f"{gap_sum.gaps:,}", f"{gap_sum.versions:,}")
        print_table(out, table)
    out.write(
        f"{pluralize(versions, 'version')} missing in {pluralize(gaps, 'gap')}, {quarantined:,} of "
        f"them in quarantine. {pluralize(outcome.days, 'day')} read, "
        f"{pluralize(outcome.documents, 'document')} looked at, "
        f"{pluralize(outcome.expired, 'gap')} expired, in {outcome.seconds:.1f} s."
    )
