"""Django models for reading the outbox tables. SQL statements, not the ORM, write the rows."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Document(models.Model):
    """A document: its newest version, its newest sent version, and why the next version waits.

    `waiting_since` is when the oldest unsent version was recorded, or None if all are sent.
    """

    key = models.TextField(_("document"), primary_key=True)
    bucket = models.SmallIntegerField(_("bucket"))
    version = models.IntegerField(_("newest version"))
    sent = models.IntegerField(_("sent up to"))
    type = models.SmallIntegerField(_("type"))
    digest = models.BinaryField()
    recorded_at = models.DateTimeField(_("recorded at"))
    waiting_since = models.DateTimeField(_("waiting since"), null=True)
    attempts = models.IntegerField(_("failed attempts"))
    next_attempt_at = models.DateTimeField(_("next attempt"), null=True)
    last_error = models.TextField(_("last error"))

    class Meta:
        app_label = "outbox"
        db_table = "outbox_document"
        verbose_name = _("document")
        verbose_name_plural = _("documents")

    def __str__(self) -> str:
        return self.key


class Message(models.Model):
    """A recorded version, stored in the table of its day."""

    pk = models.CompositePrimaryKey("document", "version", "slot")
    document = models.TextField()
    version = models.IntegerField()
    type = models.SmallIntegerField()
    recorded_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    client_id = models.TextField()
    author = models.TextField(null=True)
    parent = models.TextField(null=True)
    data = models.TextField()
    slot = models.SmallIntegerField()

    class Meta:
        app_label = "outbox"
        db_table = "outbox_message"
