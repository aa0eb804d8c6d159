"""The tables of `annals gaps`: docs/decisions/0034-gaps.md."""

from typing import TYPE_CHECKING, Any

from django.db import models

from history.record import CLIENT_ID_LENGTH, ID_LENGTH

if TYPE_CHECKING:
    AnyField = models.Field[Any, Any]
else:  # Django's class takes no parameters where it runs
    AnyField = models.Field


class MultirangeField(AnyField):
    """Sets of whole numbers, for SQL only."""

    def db_type(self, connection: object) -> str:  # noqa: ARG002 - Django's signature
        return "int8multirange"


class GapDocument(models.Model):
    """Which versions of a document were ever seen in the store. newest_day: the latest day with one
    of them. lowest: the lowest of them. judged: the lowest version for which begun and since hold;
    begun: it is the first version. since: else, the moment before which no older version can be
    dated; None if that is not known."""

    pk = models.CompositePrimaryKey("entity", "id")
    entity = models.CharField(max_length=40)
    id = models.CharField(max_length=ID_LENGTH)
    versions = MultirangeField()
    newest_day = models.DateField()
    lowest = models.IntegerField()
    judged = models.IntegerField(null=True)
    begun = models.BooleanField(db_default=False)
    since = models.DateTimeField(null=True)

    class Meta:
        db_table = "gap_document"
        default_permissions = ()


class GapPending(models.Model):
    """A document whose gaps must be looked at again."""

    pk = models.CompositePrimaryKey("entity", "id")
    entity = models.CharField(max_length=40)
    id = models.CharField(max_length=ID_LENGTH)

    class Meta:
        db_table = "gap_pending"
        default_permissions = ()


class GapDay(models.Model):
    """A day of a table whose versions are in gap_document. mark: tells whether rows came since."""

    pk = models.CompositePrimaryKey("table", "day")
    table = models.CharField(max_length=63)
    day = models.DateField()
    mark = models.TextField()
    scanned_at = models.DateTimeField()

    class Meta:
        db_table = "gap_day"
        default_permissions = ()


class GapRun(models.Model):
    """The latest complete run of `annals gaps`, in the only row. quarantined: missing versions in
    quarantine. removed_before: documents without a younger version are forgotten."""

    id = models.IntegerField(primary_key=True)
    started_at = models.DateTimeField()
    seconds = models.FloatField()
    days = models.IntegerField()
    quarantined = models.BigIntegerField()
    removed_before = models.DateField()

    class Meta:
        db_table = "gap_run"
        default_permissions = ()


class VersionGap(models.Model):
    """Versions first to last of a document that never arrived. beginning: there is no older one.
    client_id: the service that made the next version. since: they are not older than this; until:
    when the next version was made. asked_at: when `gaps heal` last asked for them. closed_at: None
    while they are missing; outcome: arrived, or expired if the store can no longer tell."""

    id = models.BigAutoField(primary_key=True)
    entity = models.CharField(max_length=40)
    document = models.CharField(max_length=ID_LENGTH)
    first = models.IntegerField()
    last = models.IntegerField()
    beginning = models.BooleanField()
    client_id = models.CharField(max_length=CLIENT_ID_LENGTH)
    since = models.DateTimeField()
    until = models.DateTimeField()
    found_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, default="", db_default="")

    class Meta:
        db_table = "version_gap"
        default_permissions = ()
        indexes = [
            models.Index(
                fields=["entity", "document", "first"],
                condition=models.Q(closed_at=None),
                name="version_gap_open",
            ),
            models.Index(
                fields=["since"], condition=models.Q(closed_at=None), name="version_gap_since"
            ),
            models.Index(fields=["closed_at"], name="version_gap_closed"),
        ]
