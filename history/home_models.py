"""The tables that say in a distributed installation where a child is; history.models takes them
over. Empty in a plain one. See docs/decisions/0064-distribution-by-application.md."""

from __future__ import annotations

from django.db import models

from history.record import ID_LENGTH


class ChildHome(models.Model):
    """An application that has versions of a child. newest_day: UTC, the latest day with one of
    them; retention uses it. Distributed by the id of the child."""

    pk = models.CompositePrimaryKey("entity", "id", "product_instance_id")
    entity = models.CharField(max_length=40)
    id = models.CharField(max_length=ID_LENGTH)
    product_instance_id = models.CharField(max_length=ID_LENGTH)
    newest_day = models.DateField()

    class Meta:
        db_table = "child_home"
        default_permissions = ()


class ChildMoved(models.Model):
    """A child that has versions in this application and in another one, too. There is a row for
    each direction. Distributed by application, as the versions are."""

    pk = models.CompositePrimaryKey("product_instance_id", "entity", "id", "other_application")
    product_instance_id = models.CharField(max_length=ID_LENGTH)
    entity = models.CharField(max_length=40)
    id = models.CharField(max_length=ID_LENGTH)
    other_application = models.CharField(max_length=ID_LENGTH)

    class Meta:
        db_table = "child_moved"
        default_permissions = ()
