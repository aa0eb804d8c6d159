"""Runs one verb of `annals partitions`, and reports why it could not be done."""

from collections.abc import Callable, Mapping
from typing import Final

import psycopg
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from psqlextra.partitioning import PostgresPartitioningError

from annals.management.partitions import listing, maintaining, one_day, verifying
from annals.management.partitions.call import PartitionsCall
from history.common.complaints import ExplainedError
from history.common.error_sentences import explain_known_error
from history.common.error_text import describe
from history.retention.run_lock import NoRunLockError

# What each verb calls; it returns the exit code.
VERBS: Final[Mapping[str, Callable[[PartitionsCall], int]]] = {
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


def run_verb(call: PartitionsCall) -> int:
    """Run the verb of the call, and return the exit code.

    Raises:
        CommandError: it could not be done; the exit code is 2.
    """
    try:
        return VERBS[call.options["action"]](call)
    except NoRunLockError as error:
        call.stderr.write(f"Nothing done: {error}.")
        return 1
    except BrokenPipeError:
        raise  # the reader of standard output has left
    except PostgresPartitioningError as error:
        raise CommandError(str(error) or describe(error), returncode=2) from error
    except (DatabaseError, psycopg.Error, OSError, ExplainedError) as error:
        raise CommandError(explain_known_error(error) or describe(error), returncode=2) from error
