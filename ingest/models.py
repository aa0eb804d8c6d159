"""The tables of ingest: the ledger of offsets, the offset gaps, and the quarantine."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils.translation import gettext_lazy as _

from history.common.consumer_silence import Silence
from history.documents.record import CLIENT_ID_LENGTH
from history.kinds.entities import BY_TOPIC


class Ledger(models.Model):
    """How far one topic partition was read, and the number of its messages by fate.

    next_offset - first_offset = read + skipped + lost, and
    read = stored + repeated + expired + quarantined. Both equations always hold, because one
    transaction changes all of these columns.

    Attributes:
        quarantine_removed: How many of the messages that `quarantined` counts have been removed
            from the quarantine since.
        high_watermark: The end offset at the broker; 0 for an empty partition, null if unknown.
        end_known_at: The latest moment at which high_watermark was known to be the end offset.
        last_offset, last_leader_epoch, last_digest: The last message that was read. After the next
            claim it shows whether the log was truncated: see `LastMessage`.
        resume_until: Bad messages before this offset do not halt the topic partition; null if it
            was never resumed.
        noted_from: From this offset on, the tables ingest_unstored and ingest_quarantine have all
            messages that were read but not stored. For earlier offsets they are incomplete.
        halted_explanation: The reason of the halt as JSON, from which the sentence halted_why was
            made; null in rows of release 0.1.0.
        forecast_at: When the consumer last made a forecast of losses.
        loss_at: When the broker deletes the oldest unread message if nothing more is read; null if
            the broker keeps it without a limit.
        kept_seconds: How long the broker keeps a message that arrived at forecast_at; null without
            a limit.
        arriving_rate: The number of messages that arrive in a second.
        reading_rate: The number of messages that the consumer read in a second while it was behind;
            null if it never was behind.
    """

    pk = models.CompositePrimaryKey("topic", "topic_id", "partition")
    topic = models.CharField(max_length=249)
    topic_id = models.CharField(max_length=64)
    partition = models.IntegerField()
    first_offset = models.BigIntegerField()
    next_offset = models.BigIntegerField()
    high_watermark = models.BigIntegerField(null=True)
    end_known_at = models.DateTimeField(null=True)
    read = models.BigIntegerField(default=0)
    stored = models.BigIntegerField(default=0)
    repeated = models.BigIntegerField(default=0)
    expired = models.BigIntegerField(default=0)
    quarantined = models.BigIntegerField(default=0)
    quarantine_removed = models.BigIntegerField(db_default=0)
    skipped = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    lost_acknowledged = models.BigIntegerField(db_default=0)
    epoch = models.BigIntegerField(default=0)
    newest_timestamp = models.DateTimeField(null=True)
    last_offset = models.BigIntegerField(null=True)
    last_leader_epoch = models.IntegerField(null=True)
    last_digest = models.BinaryField(null=True)
    halted_at = models.DateTimeField(null=True)
    halted_why = models.CharField(max_length=200, default="", blank=True)
    halted_explanation = models.JSONField(null=True)
    resume_until = models.BigIntegerField(null=True)
    noted_from = models.BigIntegerField(db_default=0)
    updated_at = models.DateTimeField()
    checked_at = models.DateTimeField()
    forecast_at = models.DateTimeField(null=True)
    loss_at = models.DateTimeField(null=True)
    kept_seconds = models.FloatField(null=True)
    arriving_rate = models.FloatField(null=True)
    reading_rate = models.FloatField(null=True)

    # Attributes that only ingest.completeness.ledger_rows.load_entries() sets.
    current: bool
    """False if the topic was created again later, or its log was truncated."""
    log_cut: bool
    """Whether the log was truncated, and is read again under another row of the ledger."""
    in_quarantine: int | None
    """What `quarantined` should be: the rows in quarantine that are not resolved, and the rows
    removed from it. None if not counted."""
    retired: str
    """Why the topic is declared finished, or empty."""
    silence: Silence | None
    """Whether the consumer or the brokers are silent, and since when. None if the topic partition
    is being read, or need not be."""

    class Meta:
        db_table = "ingest_ledger"
        verbose_name = _("ledger row")
        verbose_name_plural = _("ledger")
        permissions = [("view_completeness", "Can view the completeness of the store")]

    @property
    def lag(self) -> int | None:
        """The number of unread messages at the broker; None if it is not known."""
        if not self.current:
            return 0
        if self.high_watermark is None:
            return None
        return max(0, self.high_watermark - self.next_offset)

    @property
    def newly_lost(self) -> int:
        """The number of lost messages that no operator has acknowledged (`annals ledger`)."""
        return self.lost - self.lost_acknowledged

    @property
    def settled(self) -> int:
        """The number of messages that were stored, repeated, expired or quarantined.

        It is equal to `read`, unless somebody has changed the row by hand.
        """
        return self.stored + self.repeated + self.expired + self.quarantined

    @property
    def passed(self) -> int:
        """The number of offsets that are accounted for: read, skipped or lost.

        It is equal to next_offset - first_offset, unless somebody has changed the row by hand.
        """
        return self.read + self.skipped + self.lost

    @property
    def state(self) -> str:
        if self.halted_at is not None:
            return f"halted: {self.halted_why}"
        if self.retired:
            return f"retired: {self.retired}"
        if self.log_cut:
            return "log truncated later"
        if self.topic not in BY_TOPIC:
            return "not read: no kind declares it"
        if self.silence is not None:
            return str(self.silence)
        return "reading" if self.current else "topic created again later"


class Gap(models.Model):
    """Offsets [start_offset, end_offset) that the broker did not deliver.

    `why` is the reason that an operator gave when acknowledging a loss; empty before that.
    """

    topic = models.CharField(max_length=249)
    topic_id = models.CharField(max_length=64)
    partition = models.IntegerField()
    start_offset = models.BigIntegerField()
    end_offset = models.BigIntegerField()
    lost = models.BooleanField()
    noticed_at = models.DateTimeField()
    why = models.CharField(max_length=200, db_default="", blank=True)

    class Meta:
        db_table = "ingest_gap"
        verbose_name = _("offset gap")
        verbose_name_plural = _("offset gaps")


class Unstored(models.Model):
    """Offsets of one batch and topic partition that brought no new row and are not in quarantine.

    All ranges of a row lie in [start_offset, end_offset), which has at most UNSTORED_SPAN offsets.

    Attributes:
        repeated: Ranges of messages that were stored before: start, end, start, end, ...
        expired: Ranges of messages that were older than retention, in the same form.
        skipped: Ranges of offsets that never held a message, in the same form.
    """

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(max_length=249)
    topic_id = models.CharField(max_length=64)
    partition = models.IntegerField()
    start_offset = models.BigIntegerField()
    end_offset = models.BigIntegerField()
    repeated = ArrayField(models.BigIntegerField())
    expired = ArrayField(models.BigIntegerField())
    skipped = ArrayField(models.BigIntegerField())
    noted_at = models.DateTimeField()

    class Meta:
        db_table = "ingest_unstored"
        default_permissions = ()
        indexes = [
            models.Index(
                fields=["topic", "partition", "topic_id", "end_offset"],
                name="ingest_unstored_place",
            ),
            models.Index(fields=["noted_at"], name="ingest_unstored_noted"),
        ]


class RetiredTopic(models.Model):
    """A topic that an operator declared finished: completeness no longer waits for it."""

    topic = models.CharField(max_length=249, primary_key=True)
    why = models.CharField(max_length=200)
    retired_at = models.DateTimeField()

    class Meta:
        db_table = "ingest_retired_topic"
        default_permissions = ()


class AskedTopic(models.Model):
    """Whether a topic exists, by the last answer of the brokers.

    A topic has a row only if the brokers once answered that it does not exist.

    Attributes:
        asked_at: When a consumer sent the request, by the clock of the database.
    """

    topic = models.CharField(max_length=249, primary_key=True)
    absent = models.BooleanField()
    asked_at = models.DateTimeField()

    class Meta:
        db_table = "ingest_asked_topic"
        default_permissions = ()


class Pace(models.Model):
    """The message counts of the whole ledger at one moment.

    A consumer records them every ten minutes. Rates are computed from two rows.

    Attributes:
        slot: The number of the row, from 0 to SLOTS - 1. It grows by one every SECONDS seconds.
            After SLOTS - 1 comes 0 again, so that new rows overwrite the oldest ones.
        came: How many messages had arrived at the brokers.
        read: How many messages had been read.
        stored: How many messages had been stored.
    """

    SECONDS, SLOTS = 600, 150

    slot = models.IntegerField(primary_key=True)
    at = models.DateTimeField()
    came = models.BigIntegerField()
    read = models.BigIntegerField()
    stored = models.BigIntegerField()

    class Meta:
        db_table = "ingest_pace"
        default_permissions = ()


class JobRun(models.Model):
    """The latest complete run of a cron job that leaves no other trace in the database."""

    RETRY = "quarantine retry"

    name = models.CharField(max_length=40, primary_key=True)
    started_at = models.DateTimeField()
    outcome = models.CharField(max_length=200)

    class Meta:
        db_table = "ingest_job_run"
        default_permissions = ()


class QuarantineRequest(models.Model):
    """A person's request on a screen to retry or discard messages.

    `annals quarantine retry` executes it, because the database login of the web process may not
    change the quarantine.

    Attributes:
        ids: The ids of the messages. If empty, the request is for all messages with this reason,
            client_id, field and topic.
        last_id: Messages with a higher id are left out, because the person did not see them.
        outcome: How many messages were stored, discarded and so on, as a text. It is written
            together with done_at.
    """

    class Action(models.TextChoices):
        RETRY = "retry", _("retry")
        DISCARD = "discard", _("discard")

    action = models.CharField(max_length=10, choices=Action)
    reason = models.CharField(max_length=40)
    client_id = models.CharField(max_length=CLIENT_ID_LENGTH)
    field = models.CharField(max_length=200)
    topic = models.CharField(max_length=249)
    ids = ArrayField(models.BigIntegerField())
    last_id = models.BigIntegerField()
    why = models.CharField(max_length=200)
    login = models.CharField(max_length=150)
    asked_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=200, default="")

    class Meta:
        db_table = "ingest_quarantine_request"
        default_permissions = ()
        permissions = [("ask_quarantine", _("Can ask to retry and discard quarantined messages"))]
        indexes = [
            models.Index(
                fields=["id"], condition=models.Q(done_at=None), name="ingest_request_open"
            ),
        ]


class Quarantined(models.Model):
    """A message that could not be stored, byte for byte, with the state of its retries.

    Attributes:
        day: The UTC day of the version, or the day of the message if that is not known.
        entity, entity_id, version: The version, if the message names it.
        client_id: The service, if the message names it.
        application: The application that a message of a child names, if it can be read.
        made_at: updatedAt of the version, if it can be read.
        reason, detail: Why the message was not stored at the last attempt.
        first_reason, first_detail: Why the message was put into quarantine, if that reason differs
            from `reason`.
        field: The pointer or name of the wrong field; empty if no single field is wrong.
        explanation, first_explanation: The explanations from which `detail` and `first_detail` were
            written. Screens translate them. Null in rows of release 0.1.0.
    """

    class Status(models.TextChoices):
        NEW = "new", _("new")
        RETRYING = "retrying", _("retrying")
        FAILED = "failed", _("failed")
        RESOLVED = "resolved", _("resolved")
        DISCARDED = "discarded", _("discarded")

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(_("topic"), max_length=249)
    topic_id = models.CharField(max_length=64)
    partition = models.IntegerField(_("partition"))
    offset = models.BigIntegerField(_("offset"))
    timestamp = models.DateTimeField(_("time of the message"), null=True)
    day = models.DateField(null=True)
    entity = models.CharField(max_length=40, default="", db_default="")
    entity_id = models.CharField(max_length=32, default="", db_default="")
    version = models.IntegerField(null=True)
    application = models.CharField(max_length=32, default="", db_default="")
    made_at = models.DateTimeField(null=True)
    client_id = models.CharField(_("service"), max_length=CLIENT_ID_LENGTH, db_default="")
    key = models.BinaryField(null=True)
    value = models.BinaryField(null=True)
    headers = models.JSONField(default=list)
    reason = models.CharField(_("reason"), max_length=40)
    detail = models.TextField(_("detail"))
    first_reason = models.CharField(max_length=40, default="", db_default="", blank=True)
    first_detail = models.TextField(default="", db_default="", blank=True)
    field = models.CharField(max_length=200, default="", db_default="", blank=True)
    explanation = models.JSONField(null=True)
    first_explanation = models.JSONField(null=True)
    status = models.CharField(_("status"), max_length=10, choices=Status, default=Status.NEW)
    attempts = models.IntegerField(_("attempts"), default=0)
    first_seen = models.DateTimeField(_("first seen"))
    next_attempt = models.DateTimeField(_("next attempt"), null=True)
    settled_at = models.DateTimeField(_("settled at"), null=True)
    outcome = models.CharField(_("outcome"), max_length=200, default="", blank=True)

    class Meta:
        db_table = "ingest_quarantine"
        verbose_name = _("quarantined message")
        verbose_name_plural = _("quarantine")
        constraints = [
            models.UniqueConstraint(
                fields=["topic", "topic_id", "partition", "offset"], name="ingest_quarantine_place"
            )
        ]
        indexes = [
            models.Index(fields=["status", "reason"], name="ingest_quarantine_status"),
            models.Index(fields=["first_seen"], name="ingest_quarantine_seen"),
            models.Index(fields=["day"], name="ingest_quarantine_day"),
            models.Index(
                fields=["entity", "entity_id", "version"],
                condition=~models.Q(entity_id=""),
                name="ingest_quarantine_version",
            ),
            # For the pages of a document or application: history/store/quarantine_queries.py.
            models.Index(
                fields=["entity", "entity_id", "version"],
                condition=models.Q(status__in=["new", "retrying", "failed"]),
                name="ingest_quarantine_open",
            ),
            models.Index(
                fields=["application"],
                condition=models.Q(status__in=["new", "retrying", "failed"])
                & ~models.Q(application=""),
                name="ingest_quarantine_open_of",
            ),
            # The rows that the ledger counts as quarantined.
            models.Index(
                fields=["topic", "topic_id", "partition", "offset"],
                condition=~models.Q(status="resolved"),
                name="ingest_quarantine_counted",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"
