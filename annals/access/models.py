"""Who a login is at its provider, where it is logged in, and who looked at what."""

from typing import Final

from django.contrib.auth.models import User
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from psqlextra.models import PostgresPartitionedModel
from psqlextra.types import PostgresPartitioningMethod

from annals.access.journal.words import Action, Actor, Outcome

# Before the primary key of a user, in the journal.
USER: Final = "user:"


class Identity(models.Model):
    """A person at a provider. The key is issuer and subject, never a name or an address."""

    issuer = models.CharField(max_length=1000)
    subject = models.CharField(max_length=255)
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="identity")
    login = models.CharField(max_length=150)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once")]

    def __str__(self) -> str:
        return self.login


class ProviderSession(models.Model):
    """A session that a provider began, so that the provider can end it."""

    session_key = models.CharField(max_length=40, primary_key=True)
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE)
    provider_session = models.CharField(max_length=255, blank=True)
    began = models.DateTimeField()

    class Meta:
        default_permissions = ()


class BreakGlass(models.Model):
    """A local superuser for the day on which no provider answers; see `annals breakglass`."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True)
    made = models.DateTimeField()

    class Meta:
        default_permissions = ()


class LogoutToken(models.Model):
    """A logout token that was used, by a digest of its provider and id, until it expires."""

    digest = models.CharField(max_length=64, primary_key=True)
    until = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()


def identity_of(user: int) -> str:
    """The identity of a login in the journal, by its primary key: a login may get another name."""
    return f"{USER}{user}"


class JournalEntry(PostgresPartitionedModel):
    """One row of the access journal; a request that read several applications has a row for each.

    at: the database's clock. actor, action, outcome: see annals.access.journal.words. login: of a
    person, or a client id; empty where nobody was logged in. identity: who that is, whatever the
    login is called later. entity, entity_id: as asked. application: the one that it belongs to,
    empty where not known. query: the address with its parameters, without values that can be data
    of a client. path, moment: which field of which version was unmasked. Text is on one line, and
    cut to the length of its column.
    """

    pk = models.CompositePrimaryKey("at", "id")
    at = models.DateTimeField(db_default=Now())
    id = models.UUIDField(db_default=RandomUUID())  # type: ignore[assignment] # not Django's own
    login = models.CharField(max_length=150)
    identity = models.CharField(max_length=300)
    actor = models.CharField(max_length=20)
    address = models.CharField(max_length=45)
    request_id = models.CharField(max_length=64)
    action = models.CharField(max_length=20)
    entity = models.CharField(max_length=40)
    entity_id = models.CharField(max_length=200)
    application = models.CharField(max_length=200)
    outcome = models.CharField(max_length=10)
    status = models.IntegerField()
    method = models.CharField(max_length=10)
    query = models.CharField(max_length=1000)
    path = models.TextField()
    moment = models.CharField(max_length=40)
    reason = models.CharField(max_length=500)

    class Meta:
        db_table = "access_journal"
        default_permissions = ()
        permissions = [("view_journal", _("Can read the access journal"))]
        constraints = [
            models.CheckConstraint(
                name="access_journal_words",
                condition=models.Q(
                    actor__in=Actor.values, action__in=Action.values, outcome__in=Outcome.values
                ),
            )
        ]
        indexes = [
            models.Index("login", "at", name="access_journal_login"),
            models.Index(
                "entity_id", "at", name="access_journal_entity", condition=~models.Q(entity_id="")
            ),
            models.Index(
                "application",
                "at",
                name="access_journal_application",
                condition=~models.Q(application=""),
            ),
        ]

    class PartitioningMeta:
        method = PostgresPartitioningMethod.RANGE
        key = ["at"]
