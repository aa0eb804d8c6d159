"""Who a login is at its provider, where it is logged in, and how many of its logins failed."""

from django.contrib.auth.models import User
from django.db import models


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
    """A local superuser for the day on which no provider answers; see `manage.py breakglass`."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True)
    made = models.DateTimeField()

    class Meta:
        default_permissions = ()


class Attempts(models.Model):
    """Failed logins of one name or from one address, since the last quiet hour."""

    key = models.CharField(max_length=64, primary_key=True)  # a digest: no name is kept here
    failures = models.IntegerField()
    last = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()
