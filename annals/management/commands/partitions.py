"""`annals partitions`: lists, plans and maintains the days of all tables."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from annals.access import journal
from history.kinds.entities import BY_NAME
from history.management.numbers import MAX_SECONDS, make_number_parser, parse_day


class Command(BaseCommand):
    help = "List, plan and maintain the day partitions of the *_aud tables and the access journal."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="print the partitions that exist")
        planning = actions.add_parser(
            "plan", help="print which days would be created, dropped and kept, and why"
        )
        maintaining = actions.add_parser(
            "maintain",
            help="execute the plan; exit 0: done, 1: not everything was possible now, the next run "
            "tries again, 2: something failed",
        )
        _add_maintain_arguments(maintaining)
        for action in (planning, maintaining):
            _add_plan_arguments(action)
        restoring = actions.add_parser("restore", help="bring a day back from the archive")
        releasing = actions.add_parser("release", help="let maintain drop a restored day again")
        sealing = actions.add_parser(
            "seal", help="seal a day as it is now; check a sealed day, and give it a new seal"
        )
        packing = actions.add_parser(
            "pack", help="pack a finished day: up to 64 versions of a document in one row"
        )
        unpacking = actions.add_parser("unpack", help="make the rows of a packed day plain again")
        repairing = actions.add_parser(
            "repair", help="remove the second copy of each version that a packed day has twice"
        )
        checking = actions.add_parser(
            "verify",
            help="check sealed days against their seals, or with --archive the files of the "
            "archive; exit 1: a day differs",
        )
        _add_verify_arguments(checking)
        forgetting = actions.add_parser(
            "forget", help="remove a day from the archive; nothing else removes archived rows"
        )
        adopting = actions.add_parser(
            "adopt",
            help="take over archived rows that the database does not know, for example because it "
            "was restored from an earlier backup",
        )
        for action in (forgetting, adopting):
            action.add_argument("--entity", choices=BY_NAME, required=True, help="kind of entity")
            action.add_argument(
                "--why", required=True, help="the reason, kept in the access journal"
            )
        of_a_day = (restoring, releasing, forgetting, adopting, sealing, packing, repairing)
        for action in of_a_day:
            action.add_argument("day", type=parse_day, help="YYYY-MM-DD, UTC")
        unpacking.add_argument("day", type=parse_day, nargs="?", help="YYYY-MM-DD, UTC")
        unpacking.add_argument(
            "--all",
            action="store_true",
            help="every packed day; then a release that cannot read packed days works again",
        )
        for action in (restoring, releasing, packing, unpacking, repairing):
            action.add_argument("--entity", choices=BY_NAME, help="only this kind of entity")
        for action in (sealing, checking):
            action.add_argument(
                "--entity",
                choices=[*BY_NAME, journal.NAME],
                help="only this kind of entity, or only the access journal",
            )
        for action in (listing, planning, maintaining, checking):
            action.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        # Imported here, so that help does not wait for Django's models, psycopg and pyarrow.
        import psycopg
        from django.db import Error as DatabaseError
        from psqlextra.partitioning import PostgresPartitioningError

        from annals.management.partitions import listing, maintaining, one_day, verifying
        from annals.management.partitions.call import PartitionsCall
        from history.common.error_sentences import explain_known_error
        from history.common.error_text import describe
        from history.common.explained_errors import ExplainedError
        from history.retention.run_lock import NoRunLockError

        verbs = {
            "list": listing.list_partitions,
            "plan": listing.show_plan,
            "maintain": maintaining.maintain_days,
            "verify": verifying.verify,
            "seal": one_day.seal_one_day,
            "pack": one_day.pack_one_day,
            "unpack": one_day.unpack_days,
            "repair": one_day.repair_packed_day,
            "restore": one_day.restore_archived_day,
            "release": one_day.release_restored_day,
            "forget": one_day.forget_archived_day,
            "adopt": one_day.adopt_archived_day,
        }
        try:
            code = verbs[options["action"]](PartitionsCall(options, self.stdout, self.stderr))
        except NoRunLockError as error:
            self.stderr.write(f"Nothing done: {error}.")
            sys.exit(1)
        except BrokenPipeError:
            raise  # the reader of standard output has left
        except PostgresPartitioningError as error:
            raise CommandError(str(error) or describe(error), returncode=2) from error
        except (DatabaseError, psycopg.Error, OSError, ExplainedError) as error:
            explanation = explain_known_error(error) or describe(error)
            raise CommandError(explanation, returncode=2) from error
        if code:
            sys.exit(code)


def _add_plan_arguments(parser: CommandParser) -> None:
    """Add the arguments of `plan` and `maintain`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="also drop days that are held for unresolved or unread messages",
    )
    parser.add_argument(
        "--each",
        action="store_true",
        help="one line for each partition, instead of one for several days in a row",
    )


def _add_maintain_arguments(parser: CommandParser) -> None:
    """Add the arguments that only `maintain` has."""
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument(
        "--without-archive",
        action="store_true",
        help="also drop days that are not archived, although this installation archives days",
    )
    parser.add_argument(
        "--accept-changed",
        type=parse_day,
        metavar="DAY",
        help="archive and drop this day although its rows changed after it was sealed; from then "
        "on, `verify` reports the day (YYYY-MM-DD, UTC)",
    )
    parser.add_argument(
        "--why", default="", help="with --accept-changed: the reason, kept in the access journal"
    )


def _add_verify_arguments(parser: CommandParser) -> None:
    """Add the arguments that only `verify` has."""
    parser.add_argument("day", type=parse_day, nargs="?", help="YYYY-MM-DD, UTC")
    parser.add_argument(
        "--archive",
        action="store_true",
        help="read the files of the archive and compare them with manifest, database and seal, "
        "the day with the oldest check first",
    )
    parser.add_argument(
        "--seconds",
        type=make_number_parser(0, MAX_SECONDS),
        help="with --archive: do not start another day after this time; the next run continues "
        "(default: all days)",
    )
