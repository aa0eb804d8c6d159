"""What `annals gaps` does."""

import json
import sys
from dataclasses import asdict

from django.conf import settings
from django.core.management.base import BaseCommand

from history.base import clock
from history.base.plain_text import one_line
from history.base.table import columns, counted, print_table
from history.daily.window import Window
from history.gaps import read
from history.gaps.run import latest, run
from history.management.progress import progress


def bring_up_to_date(command: BaseCommand, *, as_json: bool) -> None:
    """Run it, and print the sums."""
    annals, out = settings.ANNALS, command.stdout
    window = Window.at(clock.now(), annals.retention_days, annals.ahead_days)
    with progress("days", None, sys.stderr) as advance:
        done = run(window, clock.now(), lambda: advance(1))
    sums, noted = read.sums(), latest()
    quarantined = noted.quarantined if noted else 0
    gaps, versions = sum(each.gaps for each in sums), sum(each.versions for each in sums)
    if as_json:
        answer = {
            **asdict(done),
            "seconds": round(done.seconds, 3),
            "gaps": gaps,
            "versions": versions,
            "quarantined": quarantined,
            "by": [each._asdict() for each in sums],
        }
        out.write(json.dumps(answer))
        return
    if sums:
        names = ("entity", "service", "gaps", "versions missing")
        table = columns(*names, right=names[2:])
        for each in sums:
            client = one_line(each.client_id)
            table.add_row(each.entity, client, f"{each.gaps:,}", f"{each.versions:,}")
        print_table(out, table)
    out.write(
        f"{counted(versions, 'version')} missing in {counted(gaps, 'gap')}, {quarantined:,} of "
        f"them in quarantine. {counted(done.days, 'day')} read, "
        f"{counted(done.documents, 'document')} looked at, "
        f"{counted(done.expired, 'gap')} expired, in {done.seconds:.1f} s."
    )
