"""The tables of the inbox, for reading only: SQL writes them.

inbox_message has a row for each message and handler until that handler has processed the message.
inbox_done has the identities of processed messages, by the day of processing.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class WaitingState(models.TextChoices):
    """The state of a message that is not processed yet.

    New: the message waits for its turn. Processing: an attempt has begun. Failed: the last attempt
    failed, and a further attempt will follow. Dead: no attempt follows until a person retries the
    message.
    """

    NEW = "new", pgettext_lazy("message", "New")
    PROCESSING = "processing", pgettext_lazy("message", "Processing")
    FAILED = "failed", _("Failed")
    DEAD = "dead", _("Dead letter")


class Waiting(models.Model):
    """A message that one handler has not processed yet.

    Attributes:
        chain: The topic and the Kafka key. For each handler, messages with equal topic and key are
            processed in the order of `id`.
        due_at: When the next attempt can begin. None if the message waits for an earlier message
            or, as a dead letter, for a person.
        holds: Whether later messages with the same chain wait for this message.
    """

    id = models.BigAutoField(primary_key=True)
    handler = models.TextField(_("handler"))
    identity = models.TextField(_("identity"))
    chain = models.TextField(_("key"))
    topic = models.TextField(_("topic"))
    partition = models.IntegerField(_("partition"))
    offset = models.BigIntegerField(_("offset"))
    key = models.BinaryField(null=True)
    value = models.BinaryField(null=True)
    headers = models.JSONField(default=list)
    sent_at = models.DateTimeField(_("sent at"), null=True)
    received_at = models.DateTimeField(_("received at"))
    state = models.TextField(_("state"), choices=WaitingState.choices)
    holds = models.BooleanField(default=True)
    attempts = models.IntegerField(_("attempts"), default=0)
    due_at = models.DateTimeField(_("next attempt"), null=True)
    last_error = models.TextField(_("last error"), default="")

    class Meta:
        app_label = "inbox"
        db_table = "inbox_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")

    def __str__(self) -> str:
        return f"{self.handler}: {self.topic}/{self.partition}/{self.offset}"


class Done(models.Model):
    """A message that a handler has processed, in the table for the day of processing.

    Nothing reads this model. Django needs it to empty the table after a TransactionTestCase.
    """

    pk = models.CompositePrimaryKey("handler", "identity", "slot")
    handler = models.TextField()
    identity = models.TextField()
    done_at = models.DateTimeField()
    slot = models.SmallIntegerField()

    class Meta:
        app_label = "inbox"
        db_table = "inbox_done"
