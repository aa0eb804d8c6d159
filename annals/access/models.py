"""Tables of logins, of their sessions at providers, and of the access journal."""

from typing import Final

from django.contrib.auth.models import User
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from psqlextra.models import PostgresPartitionedModel
from psqlextra.types import PostgresPartitioningMethod

from annals.access.journal.actions import AccessAction, AccessOutcome, ActorKind

# The prefix of a user's primary key in the journal.
USER_PREFIX: Final = "user:"


class Identity(models.Model):
    """A person at an identity provider, identified by issuer and subject, not by a name."""

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
    """A session that began at a provider. The provider can end it (back-channel logout)."""

    session_key = models.CharField(max_length=40, primary_key=True)
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE)
    provider_session = models.CharField(max_length=255, blank=True)
    began = models.DateTimeField()

    class Meta:
        default_permissions = ()


class BreakGlass(models.Model):
    """A local superuser for emergencies in which no provider answers. See `annals breakglass`."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True)
    made = models.DateTimeField()

    class Meta:
        default_permissions = ()


class LogoutToken(models.Model):
    """A used logout token, as a digest of its provider and id. Kept until the token expires."""

    digest = models.CharField(max_length=64, primary_key=True)
    until = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()


def format_user_identity(user: int) -> str:
    """Return the identity of a login in the journal. It stays the same if the login is renamed."""
    return f"{USER_PREFIX}{user}"


class JournalEntry(PostgresPartitionedModel):
    """One entry of the access journal. A request that read two applications has two entries.

    Texts are on one line and shortened to the length of their column.

    Attributes:
        at: The moment of the access, by the clock of the database.
        actor, action, outcome: See annals.access.journal.actions.
        login: The login of a person, or the client id of a program. Empty without a login.
        identity: The identity behind the login, which stays the same if the login is renamed.
        entity, entity_id: The document that the request names.
        application: The application to which the document belongs. Empty if it is not known.
        query: The address, without parameters that could have data of the bank's clients.
        path: The field that was unmasked. Empty if none was.
        moment: The moment of the version in which the field was unmasked, as text.
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
                    actor__in=ActorKind.values,
                    action__in=AccessAction.values,
                    outcome__in=AccessOutcome.values,
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
