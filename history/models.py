"""The models: one for the partitioned table of each kind, and one for each small table."""

from typing import TYPE_CHECKING, Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils.translation import gettext_lazy as _
from psqlextra.models import PostgresPartitionedModel
from psqlextra.types import PostgresPartitioningMethod

from history.documents.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH
from history.kinds.entities import ENTITIES, SEARCH_VALUE_LENGTH, EntityKind
from history.kinds.kinds_file import load_shipped_kinds


def _build_version_model(entity: EntityKind, app: str) -> type[PostgresPartitionedModel]:
    """Return the model of the *_aud table of a kind, range-partitioned by updated_at.

    Only COPY writes to such a table.
    """
    meta: dict[str, object] = {
        "app_label": app,
        "db_table": entity.table,
        "verbose_name": entity.title,
    }
    fields: dict[str, object] = {
        "id": models.CharField(max_length=ID_LENGTH),
        "version": models.IntegerField(),
        "data": models.JSONField(),
        "updated_at": models.DateTimeField(),
        "client_id": models.CharField(max_length=CLIENT_ID_LENGTH),
        "author": models.CharField(max_length=AUTHOR_LENGTH, null=True),
        "type": models.IntegerField(),
    }
    if entity.parent is not None:
        fields["product_instance_id"] = models.CharField(max_length=ID_LENGTH)
        meta["indexes"] = [
            models.Index(
                "product_instance_id", "updated_at", name=f"{entity.table.removesuffix('_aud')}_app"
            )
        ]
    return type(
        entity.model_name if app == "history" else entity.table,  # unique in its app
        (PostgresPartitionedModel,),
        {
            "__module__": __name__,
            "__doc__": f"Versions of {entity.name}.",
            **fields,
            "pk": models.CompositePrimaryKey("id", "updated_at", "version"),
            "Meta": type("Meta", (), meta),
            "PartitioningMeta": type(
                "PartitioningMeta",
                (),
                {"method": PostgresPartitioningMethod.RANGE, "key": ["updated_at"]},
            ),
        },
    )


# The models of the kinds that come with Annals. They have migrations, also if a kind is not
# declared.
_SHIPPED = {entity.name: _build_version_model(entity, "history") for entity in load_shipped_kinds()}
# The models of other kinds do not belong to an installed app. They have no migrations:
# history.store.kind_tables creates their tables.
_OTHER_KINDS_APP = "kinds"
VERSION_MODELS = {
    entity.name: _SHIPPED.get(entity.name) or _build_version_model(entity, _OTHER_KINDS_APP)
    for entity in ENTITIES
}


class PersonKind(models.TextChoices):
    """Whether a person or a service uses a login."""

    PERSON = "person", _("person")
    SERVICE = "service", _("service")


class Person(models.Model):
    """The person or service that uses a login.

    Rows are added by imports from a file, by edits on the admin screens, and when somebody logs in.
    """

    login = models.CharField(_("login"), max_length=AUTHOR_LENGTH, primary_key=True)
    full_name = models.CharField(_("full name"), max_length=200)
    kind = models.CharField(_("kind"), max_length=10, choices=PersonKind, default=PersonKind.PERSON)
    # The identity of the person at the identity provider, if the name was stored when the person
    # logged in. Empty: an import or a screen stored the name.
    written_by = models.CharField(max_length=40, default="", db_default="", editable=False)

    class Meta:
        verbose_name = _("person")
        verbose_name_plural = _("people")
        ordering = ["full_name"]

    def __str__(self) -> str:
        return self.full_name


class LabelKind(models.TextChoices):
    """The form in which the values of a field are shown."""

    TEXT = "text", _("text")
    MONEY = "money", _("money")
    PERCENT = "percent", _("percent")
    DATE = "date", _("date")
    ENUM = "enum", _("words from a list")
    PERSON = "person", _("login of a person")
    TECHNICAL = "technical", _("technical")


class FieldLabel(models.Model):
    """The label of a field of a snapshot, and how to show its values."""

    entity = models.CharField(
        _("kind of entity"),
        max_length=40,
        blank=True,
        help_text=_("Empty: every kind."),
    )
    path = models.CharField(
        _("path"),
        max_length=300,
        help_text=_("/rate, /documents/*/number; * stands for any item of a list or any key."),
    )
    russian = models.CharField(_("in Russian"), max_length=200)
    english = models.CharField(_("in English"), max_length=200, blank=True)
    kind = models.CharField(_("kind"), max_length=10, choices=LabelKind, default=LabelKind.TEXT)
    words = models.JSONField(
        _("words"),
        default=dict,
        blank=True,
        help_text=_('For words from a list: {"NEW": {"ru": "Новая", "en": "New"}}.'),
    )
    sensitive = models.BooleanField(
        _("sensitive"),
        default=False,
        db_default=False,
        help_text=_(
            "Masked, with all below it, for everybody without the permission to read sensitive "
            "fields. In its path ** stands for any number of levels: /**/phone."
        ),
    )

    class Meta:
        verbose_name = _("field label")
        verbose_name_plural = _("field labels")
        ordering = ["entity", "path"]
        constraints = [
            models.UniqueConstraint(fields=["entity", "path"], name="field_label_once"),
        ]

    def __str__(self) -> str:
        return f"{self.entity or '*'} {self.path}"


class SearchKey(models.Model):
    """A business key of a document. The consumer writes it (docs/decisions/0016-search-keys.md)."""

    pk = models.CompositePrimaryKey("value", "name", "entity", "id")
    value = models.CharField(max_length=SEARCH_VALUE_LENGTH)
    name = models.CharField(max_length=40)
    entity = models.CharField(max_length=40)
    id = models.CharField(max_length=ID_LENGTH)
    day = models.DateField()  # the day of the latest version with the key; retention uses it
    # The day of the oldest version with the key. Only for children on a cluster, otherwise null.
    first_day = models.DateField(null=True)

    class Meta:
        db_table = "search_key"


class Access(models.Model):
    """The permissions that do not belong to one model. Does not have a table."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = [
            ("view_history", _("Can read histories")),
            ("view_sensitive", _("Can read sensitive fields")),
            ("unmask", _("Can unmask one value, with a reason")),
        ]


# Records about the days of the tables, about the feed of changes, and about blocks.


class MaintainRun(models.Model):
    """One run of `partitions maintain` with its results, for the metrics."""

    started_at = models.DateTimeField()
    seconds = models.FloatField()
    exit_code = models.IntegerField()
    created = models.IntegerField()
    dropped = models.IntegerField()
    held = models.IntegerField()  # days that were not dropped because they are held
    busy = models.IntegerField()  # days that other processes had locked
    broken = models.IntegerField()  # failures in steps or days
    # This run, or an earlier one, removed the search keys without a version on or after this day.
    search_keys_before = models.DateField(null=True)

    class Meta:
        db_table = "maintain_run"
        default_permissions = ()
        get_latest_by = "started_at"


class ArchivedDay(models.Model):
    """An archived day of one table: a copy of the manifest, and the result of the last check."""

    table = models.CharField(max_length=63)
    day = models.DateField()
    rows = models.BigIntegerField()
    table_bytes = models.BigIntegerField()
    file_bytes = models.BigIntegerField()
    digest = models.CharField(max_length=64)  # of the rows in the canonical order
    files = models.JSONField()  # for each file: name, rows, bytes, sha256, first and last id
    archived_at = models.DateTimeField()
    checked_at = models.DateTimeField(null=True)  # when `verify --archive` last read the files
    fault = models.TextField(default="", db_default="")  # the error of that check; empty if none

    class Meta:
        db_table = "archived_day"
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["table", "day"], name="archived_day_once")]


class DaySeal(models.Model):
    """The seal of one day of one table, over the digest of its rows and the seal before it.

    A day that was sealed again has several seals; the newest one counts.
    """

    table = models.CharField(max_length=63)
    day = models.DateField()
    rows = models.BigIntegerField()
    digest = models.CharField(max_length=64)
    # Consecutive ranges of rows. For each range: the ids and versions of its first and last row,
    # the number of rows, and their digest.
    ranges = models.JSONField()
    previous = models.CharField(max_length=64)  # the seal before this one
    seal = models.CharField(max_length=64, unique=True)
    sealed_at = models.DateTimeField()

    class Meta:
        db_table = "day_seal"
        default_permissions = ()
        indexes = [models.Index(fields=["table", "day"], name="day_seal_day")]


class SealedDay(models.Model):
    """A day of one table that has a seal or is being sealed.

    The consumer notes the message of each row that it adds to such a day.
    """

    pk = models.CompositePrimaryKey("table", "day")
    table = models.CharField(max_length=63)
    day = models.DateField()
    # When `maintain` dropped the day's table. None: it did not, or the day was sealed again since.
    dropped_at = models.DateTimeField(null=True)
    # When the day was packed; None if it is not packed. Before the consumer adds a version to a
    # packed day, it checks that no block has this version.
    packed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "sealed_day"
        default_permissions = ()


class LateRow(models.Model):
    """A row that entered a sealed day, and the message that brought it."""

    id = models.BigAutoField(primary_key=True)
    table = models.CharField(max_length=63)
    day = models.DateField()
    row_id = models.CharField(max_length=ID_LENGTH)
    version = models.IntegerField()
    row_hash = models.BinaryField()  # SHA-256 of the row's canonical bytes
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    noted_at = models.DateTimeField()
    sealed = models.BooleanField()  # whether a newer seal of the day includes the row

    class Meta:
        db_table = "late_row"
        default_permissions = ()
        indexes = [models.Index(fields=["table", "day", "row_hash"], name="late_row_hash")]


class FeedHorizon(models.Model):
    """The moment that no page of the feed of changes has passed. The table has only this row.

    To lock the row, a login needs the right to update `id`, which is always 1. See
    history.store.late_list.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    given_to = models.DateTimeField(null=True)  # the moment; None until a program reads the feed

    class Meta:
        db_table = "feed_horizon"
        default_permissions = ()
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="feed_horizon_one_row")
        ]


class LateList(models.Model):
    """The last position of the late list, and the position up to which rows were removed.

    The table has only one row. See history.store.late_list.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    # The position of the newest row that late_batch ever had; 0 if it never had a row.
    last_position = models.BigIntegerField()
    removed_to = models.BigIntegerField()  # rows up to this position are removed

    class Meta:
        db_table = "late_list"
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="late_list_one_row")]


class LateBatch(models.Model):
    """Versions of one kind that one transaction stored after the feed had passed their moments.

    The row may outlive its versions: retention removes each version with the version's day.
    """

    position = models.BigIntegerField(primary_key=True)  # grows in the order of the commits
    entity = models.CharField(max_length=64)  # the name of the kind
    ids = ArrayField(models.CharField(max_length=ID_LENGTH))
    moments = ArrayField(models.BigIntegerField())  # microseconds since 1970
    versions = ArrayField(models.IntegerField())
    noted_at = models.DateTimeField()

    class Meta:
        db_table = "late_batch"
        default_permissions = ()
        indexes = [models.Index(fields=["noted_at"], name="late_batch_noted")]


class PackDictionary(models.Model):
    """A dictionary for the blocks of one table, made from versions of that table.

    It is never deleted: blocks need it, also blocks in backups.
    """

    # Computed from the content, see history.store.blocks.dictionaries.
    number = models.IntegerField(primary_key=True)
    table = models.CharField(max_length=63)
    content = models.BinaryField()
    # Of the first day that was packed with the dictionary: the bytes of its blocks, divided by the
    # bytes of the snapshots in them.
    ratio = models.FloatField(null=True)
    made_at = models.DateTimeField()

    class Meta:
        db_table = "pack_dictionary"
        default_permissions = ()


class ChangedRow(models.Model):
    """A change of a day's table while the table that will replace it is being built.

    Triggers of the old table write it (history.store.days.table_swap). It is deleted with the old
    table.
    """

    partition = models.BigIntegerField()  # the OID of the old table
    # insert, update, delete or truncate; or block: a block was inserted
    change = models.CharField(max_length=10)
    row_id = models.TextField(null=True)
    version = models.IntegerField(null=True)
    updated_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "changed_row"
        default_permissions = ()
        indexes = [models.Index(fields=["partition"], name="changed_row_partition")]


class PackAttempt(models.Model):
    """The latest attempt to pack a day. It is deleted when packing succeeds.

    So a stored attempt failed, is still running, or killed the process. The next run packs such
    days after all others.
    """

    pk = models.CompositePrimaryKey("table", "day")
    table = models.CharField(max_length=63)
    day = models.DateField()
    began_at = models.DateTimeField()

    class Meta:
        db_table = "pack_attempt"
        default_permissions = ()


class DoubledVersion(models.Model):
    """A version that `partitions repair` moved from its day to this table.

    The day had the version twice, with different content. The row in this table is kept until the
    table of the day is dropped.
    """

    table = models.CharField(max_length=63)
    day = models.DateField()
    row_id = models.TextField()
    version = models.IntegerField()
    updated_at = models.DateTimeField()
    client_id = models.TextField()
    author = models.TextField(null=True)
    type = models.IntegerField()
    product_instance_id = models.TextField(null=True)
    data = models.TextField()  # the text of the JSONB
    taken_at = models.DateTimeField()  # when it was moved from its day to this table

    class Meta:
        db_table = "doubled_version"
        default_permissions = ()
        indexes = [models.Index(fields=["table", "day"], name="doubled_version_day")]


class VerifiedTable(models.Model):
    """The latest complete `partitions verify` of a table, for the metrics."""

    table = models.CharField(max_length=63, primary_key=True)
    started_at = models.DateTimeField()
    days = models.IntegerField()  # how many days it read
    # How many days differ from their seals, plus one if the chain of seals is broken.
    faults = models.IntegerField()

    class Meta:
        db_table = "verified_table"
        default_permissions = ()


# The tables of `annals gaps`: docs/decisions/0034-gaps.md.

if TYPE_CHECKING:
    AnyField = models.Field[Any, Any]
else:  # at run time, Django's class cannot be subscripted
    AnyField = models.Field


class MultirangeField(AnyField):
    """A column with a set of whole numbers. Only raw SQL reads and writes the column."""

    def db_type(self, connection: object) -> str:  # noqa: ARG002 - Django's signature
        return "int8multirange"


class GapDocument(models.Model):
    """All version numbers that the store has ever had of one document.

    The row also says whether the lowest number is the first version that was ever made.
    """

    pk = models.CompositePrimaryKey("entity", "id")
    entity = models.CharField(max_length=40)
    id = models.CharField(max_length=ID_LENGTH)
    versions = MultirangeField()
    newest_day = models.DateField()  # the latest day with a version
    lowest = models.IntegerField()  # the lowest number in `versions`
    judged = models.IntegerField(null=True)  # the `lowest` for which `begun` and `since` were set
    begun = models.BooleanField(db_default=False)  # whether `judged` is the first version ever
    # If `begun` is false: the document did not exist before this moment. None if this is not known.
    since = models.DateTimeField(null=True)

    class Meta:
        db_table = "gap_document"
        default_permissions = ()


class GapPending(models.Model):
    """A document with missing versions that `annals gaps` must judge again."""

    pk = models.CompositePrimaryKey("entity", "id")
    entity = models.CharField(max_length=40)
    id = models.CharField(max_length=ID_LENGTH)

    class Meta:
        db_table = "gap_pending"
        default_permissions = ()


class GapDay(models.Model):
    """A note that `annals gaps` has stored the version numbers of a table's day in gap_document."""

    pk = models.CompositePrimaryKey("table", "day")
    table = models.CharField(max_length=63)
    day = models.DateField()
    mark = models.TextField()  # changes when the day gets rows; see history.completeness.gaps.scan
    scanned_at = models.DateTimeField()

    class Meta:
        db_table = "gap_day"
        default_permissions = ()


class GapRun(models.Model):
    """The latest complete run of `annals gaps`. The table has only this row."""

    id = models.IntegerField(primary_key=True)
    started_at = models.DateTimeField()
    seconds = models.FloatField()
    days = models.IntegerField()
    quarantined = models.BigIntegerField()  # how many missing versions are in quarantine
    # Documents without a version on or after this day were removed from gap_document.
    removed_before = models.DateField()

    class Meta:
        db_table = "gap_run"
        default_permissions = ()


class VersionGap(models.Model):
    """The versions `first` to `last` of a document that never arrived."""

    id = models.BigAutoField(primary_key=True)
    entity = models.CharField(max_length=40)
    document = models.CharField(max_length=ID_LENGTH)
    first = models.IntegerField()
    last = models.IntegerField()
    beginning = models.BooleanField()  # whether the store has no version below `first`
    client_id = models.CharField(max_length=CLIENT_ID_LENGTH)  # the service of the next version
    since = models.DateTimeField()  # the missing versions are not older than this
    until = models.DateTimeField()  # the moment of the next version
    found_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True)  # when `gaps heal` last asked for the versions
    closed_at = models.DateTimeField(null=True)  # None while the versions are missing
    # `arrived`: the versions are stored. `expired`: the gap is older than retention, or the store
    # can no longer tell whether versions are missing. Empty: the gap is open.
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
