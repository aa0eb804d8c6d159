"""Declares the metrics of the web about HTTP requests, logins and the state of the store."""

from typing import Final

from history.common.metric import MetricRegister, OpenValues
from history.kinds.entities import ENTITIES
from ingest.consumer.metric_labels import PLACE
from ingest.messages.rejection import Reason

REGISTER: Final = MetricRegister("each web process, at `/metrics`")

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ROUTE: Final = OpenValues("patterns of addresses; `none` for an address that does not exist")
# All tables with days. annals.access.journal.days is not imported, as it needs Django's models.
TABLE: Final = (*(entity.table for entity in ENTITIES), "access_journal")

# Requests.

REQUESTS: Final = REGISTER.add_counter(
    "annals_http_requests_total",
    "requests",
    "HTTP requests answered.",
    route=ROUTE,
    method=(*METHODS, "other"),
    status=OpenValues("status codes of HTTP"),
)
REQUEST_SECONDS: Final = REGISTER.add_histogram(
    "annals_http_request_seconds",
    "seconds",
    "Time to answer a request.",
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    route=ROUTE,
    method=(*METHODS, "other"),
)
STOPPED: Final = REGISTER.add_counter(
    "annals_requests_stopped_total",
    "requests",
    "Requests that were ended because they took too long.",
)

# Access.

BREAK_GLASS_LOGINS: Final = REGISTER.add_counter(
    "annals_break_glass_logins_total", "logins", "Logins of the break-glass superuser."
)
JOURNAL_FAILURES: Final = REGISTER.add_counter(
    "annals_journal_failures_total",
    "requests",
    "Requests that could not be written to the access journal, and whether they were answered.",
    became=("refused", "answered"),
)
MOST_OPENED: Final = REGISTER.add_collected_gauge(
    "annals_journal_most_opened",
    "applications",
    "The largest number of different applications that one login was shown in the last hour.",
    actor=("person", "program"),
)

# The ledger and the quarantine.

STORE_UP: Final = REGISTER.add_collected_gauge(
    "annals_store_up",
    "0 or 1",
    "1 while the database answers. While it is 0, there are no other metrics of the store.",
)
STORE_LAG: Final = REGISTER.add_collected_gauge(
    "annals_store_lag", "messages", "Messages not read yet.", **PLACE
)
LOSS_SECONDS: Final = REGISTER.add_collected_gauge(
    "annals_loss_seconds",
    "seconds",
    "Time until the broker deletes an unread message, if no consumer reads any more: the oldest "
    "one, or if all are read, one that arrives now; +Inf: never.",
    **PLACE,
)
CATCH_UP_SECONDS: Final = REGISTER.add_collected_gauge(
    "annals_catch_up_seconds",
    "seconds",
    "Time until the partition is read to its end, at the latest; "
    "+Inf: messages arrive as fast as they are read, or the partition is halted.",
    **PLACE,
)
KEPT_SECONDS: Final = REGISTER.add_collected_gauge(
    "annals_kept_seconds",
    "seconds",
    "The shortest time for which the broker keeps a message that arrives now; +Inf: for ever.",
    **PLACE,
)
STORE_HALTED: Final = REGISTER.add_collected_gauge(
    "annals_store_halted", "0 or 1", "1 while reading is halted.", **PLACE
)
STORE_SEEN: Final = REGISTER.add_collected_gauge(
    "annals_store_seen_timestamp_seconds",
    "Unix time",
    "When a consumer last recorded its position in the partition.",
    **PLACE,
)
STORE_READ_AT: Final = REGISTER.add_collected_gauge(
    "annals_store_read_timestamp_seconds", "Unix time", "When messages were last read.", **PLACE
)
STORE_END_KNOWN: Final = REGISTER.add_collected_gauge(
    "annals_store_end_known_timestamp_seconds",
    "Unix time",
    "When the brokers last confirmed the end of the partition.",
    **PLACE,
)
STORE_NEVER_READ: Final = REGISTER.add_collected_gauge(
    "annals_store_topics_never_read",
    "topics",
    "Topics that no consumer has read and that are not retired. Migration topics that do not exist "
    "are not counted.",
)
STORE_EARLIER_SESSIONS: Final = REGISTER.add_collected_gauge(
    "annals_store_earlier_sessions",
    "sessions",
    "Database sessions of an earlier release of Annals that cannot read packed days. No day is "
    "packed while such a session is connected.",
)
STORE_FAULTS: Final = REGISTER.add_collected_gauge(
    "annals_store_faults", "faults", "Faults in the ledger (`annals ledger` lists them)."
)
STORE_QUARANTINE: Final = REGISTER.add_collected_gauge(
    "annals_store_quarantine",
    "messages",
    "Unsettled messages in quarantine.",
    status=("new", "retrying", "failed"),
    reason=tuple(Reason),
)

WAL_ARCHIVE_FAILING: Final = REGISTER.add_collected_gauge(
    "annals_store_wal_archive_failing",
    "0 or 1",
    "1 while PostgreSQL's latest attempt to archive WAL failed; no value without `archive_mode`.",
)

PREPARED_LEFT: Final = REGISTER.add_collected_gauge(
    "annals_store_prepared_transactions_left",
    "transactions",
    "Prepared transactions on all nodes of a cluster that are older than five minutes. A failed "
    "node left them, or a client that is not a node. Their locks are held until somebody ends "
    "them. No value without Citus.",
)

# The partitions.

STORE_BYTES: Final = REGISTER.add_collected_gauge(
    "annals_store_bytes", "bytes", "Size on disk with indexes.", table=TABLE
)
DAYS_AHEAD: Final = REGISTER.add_collected_gauge(
    "annals_store_days_ahead",
    "days",
    "How many days in a row after today have a partition; -1 if today does not have one.",
    table=TABLE,
)
DAYS_MISSING: Final = REGISTER.add_collected_gauge(
    "annals_store_days_missing",
    "days",
    "Days of the window that do not have a partition. The newest day is not counted.",
    table=TABLE,
)
DAYS_OVERDUE: Final = REGISTER.add_collected_gauge(
    "annals_store_days_overdue",
    "days",
    "Days before the window that still have a partition, held days included.",
    table=TABLE,
)
DAYS_TO_PACK: Final = REGISTER.add_collected_gauge(
    "annals_store_days_to_pack",
    "days",
    "Days with rows that should have been packed more than a day ago. 0 if days are never packed.",
    table=TABLE,
)
MAINTAIN_STARTED: Final = REGISTER.add_collected_gauge(
    "annals_maintain_timestamp_seconds",
    "Unix time",
    "When the latest `partitions maintain` began; no value before the first.",
)
MAINTAIN_EXIT_CODE: Final = REGISTER.add_collected_gauge(
    "annals_maintain_exit_code", "exit code", "Exit code of the latest `partitions maintain`."
)
MAINTAIN_HELD: Final = REGISTER.add_collected_gauge(
    "annals_maintain_held",
    "partitions",
    "Partitions that the latest `partitions maintain` held because of unsettled messages.",
)

# The proofs.

VERIFY_STARTED: Final = REGISTER.add_collected_gauge(
    "annals_verify_timestamp_seconds",
    "Unix time",
    "When the latest complete `partitions verify` of the table began; before the first one, when "
    "the table got its first seal.",
    table=TABLE,
)
VERIFY_FAULTS: Final = REGISTER.add_collected_gauge(
    "annals_verify_faults",
    "days",
    "Days that differed from their seals in the latest complete `partitions verify`, and one more "
    "if the chain of seals was broken.",
    table=TABLE,
)
ARCHIVE_FAULTY: Final = REGISTER.add_collected_gauge(
    "annals_archive_days_faulty",
    "days",
    "Archived days whose files were missing, unreadable or changed at their last check.",
)
ARCHIVE_OLDEST_CHECK: Final = REGISTER.add_collected_gauge(
    "annals_archive_oldest_check_timestamp_seconds",
    "Unix time",
    "When the archived day that waits longest for a new check was last checked. Days that were "
    "never checked do not count.",
)

# Versions that never arrived.

MARKS: Final = REGISTER.add_collected_gauge(
    "annals_marks_checksum",
    "number",
    "A number that changes when a mark of a sensitive field is set or removed.",
)
GAP_CLIENT: Final = OpenValues("client ids of the services with most gaps; `other` for all others")
GAPS: Final = REGISTER.add_collected_gauge(
    "annals_gaps",
    "gaps",
    "Version gaps, by the service that made the next version. A gap is one or more consecutive "
    "versions that never arrived. No value before the first `annals gaps`.",
    entity=[entity.name for entity in ENTITIES],
    client=GAP_CLIENT,
)
GAP_VERSIONS: Final = REGISTER.add_collected_gauge(
    "annals_gaps_versions",
    "versions",
    "Versions that never arrived, by the service that made the next version. No value before the "
    "first `annals gaps`.",
    entity=[entity.name for entity in ENTITIES],
    client=GAP_CLIENT,
)
GAPS_STARTED: Final = REGISTER.add_collected_gauge(
    "annals_gaps_timestamp_seconds",
    "Unix time",
    "When the latest complete `annals gaps` began; no value before the first.",
)
