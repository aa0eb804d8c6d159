"""Recorded models with every kind of key and relation.

A row of `Folder` is a document. Rows of `Sheet`, `Label` and other models are recorded as parts of
the document of a `Folder`.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import uuid4

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models import F
from django.db.models.functions import Now, Upper

from outbox.recorded import Kind, PartOf, Recorded, RecordedQuerySet


class RecordedWay(Recorded):
    """The abstract base of the recorded models of this app."""

    class Meta:
        abstract = True
        app_label = "ways"


class Owner(models.Model):
    """A model that is not recorded."""

    name = models.CharField(max_length=32)

    class Meta:
        app_label = "ways"


class Tag(RecordedWay):
    """A document with a many-to-many relation. The snapshot lists the `Folder` rows of the tag."""

    name = models.CharField(max_length=32, unique=True)

    def document(self) -> dict[str, Any]:
        codes = self.folders.order_by("code").values_list("code", flat=True)
        return {"name": self.name, "folders": list(codes)}

    recorded_as = Kind("realty-info", snapshot=document, id="name")


class Folder(RecordedWay):
    """A document whose id is the field `code`. Foreign keys can refer to `code` or to `number`."""

    code = models.CharField(max_length=32, unique=True)
    number = models.IntegerField(unique=True, null=True)
    title = models.CharField(max_length=100, default="")
    owner = models.ForeignKey(Owner, models.SET_NULL, null=True)
    keeper = models.ForeignKey(Owner, models.CASCADE, null=True, related_name="kept")
    tags = models.ManyToManyField(Tag, related_name="folders")
    readers = models.ManyToManyField(Owner, through="Reading", related_name="read")
    friends = models.ManyToManyField("self")
    remarks = GenericRelation(
        "Remark", object_id_field="target_id", content_type_field="target_type"
    )

    def document(self) -> dict[str, Any]:
        def list_names(rows: Any, name: str = "name") -> list[Any]:
            return list(rows.order_by(name).values_list(name, flat=True))

        return {
            "code": self.code,
            "title": self.title,
            "owner": self.owner_id,
            "sheets": list_names(self.sheets),
            "cells": list_names(Cell.objects.filter(sheet__folder=self)),
            "labels": list_names(self.labels),
            "boxes": list_names(self.boxes),
            "tickets": list_names(self.tickets),
            "steps": list(self.steps.values_list("name", flat=True)),
            "tags": list_names(self.tags),
            "readers": list_names(self.readers),
            "friends": list_names(self.friends, "code"),
            "pins": list_names(self.pins),
        }

    recorded_as = Kind("product-instance", snapshot=document, id="code")


class OpenFolder(Folder):
    class Meta:
        app_label = "ways"
        proxy = True


class Reading(RecordedWay):
    """A row of a many-to-many relation, recorded as part of the document of a `Folder`."""

    recorded_as = PartOf("folder")

    folder = models.ForeignKey(Folder, models.CASCADE)
    owner = models.ForeignKey(Owner, models.CASCADE)
    since = models.IntegerField(default=0)


class Sheet(RecordedWay):
    """A row that is recorded as part of the document of a `Folder`, unless `folder` is NULL."""

    recorded_as = PartOf("folder")

    folder = models.ForeignKey(Folder, models.SET_NULL, null=True, related_name="sheets")
    name = models.CharField(max_length=32, unique=True)


class Cell(RecordedWay):
    """A row that is part of a `Sheet`. The sheet is part of the document of a `Folder`."""

    recorded_as = PartOf("sheet")

    sheet = models.ForeignKey(Sheet, models.CASCADE, null=True, related_name="cells")
    name = models.CharField(max_length=32)


class Label(RecordedWay):
    """A part of the document of a `Folder`. The foreign key refers to the field `code`."""

    recorded_as = PartOf("folder")

    folder = models.ForeignKey(
        Folder, models.CASCADE, to_field="code", null=True, related_name="labels"
    )
    name = models.CharField(max_length=32)


class Box(RecordedWay):
    """A part of the document of a `Folder`. The foreign key refers to the field `number`."""

    recorded_as = PartOf("folder")

    folder = models.ForeignKey(
        Folder, models.CASCADE, to_field="number", null=True, related_name="boxes"
    )
    name = models.CharField(max_length=32)


class Ticket(RecordedWay):
    """A row with a composite primary key, recorded as part of the document of a `Folder`."""

    recorded_as = PartOf("folder")

    pk = models.CompositePrimaryKey("folder_id", "line")
    folder = models.ForeignKey(Folder, models.CASCADE, related_name="tickets")
    line = models.IntegerField()
    name = models.CharField(max_length=32, default="")


class Seat(RecordedWay):
    """A document whose row has a composite primary key."""

    recorded_as = Kind("product-task", id="name")

    pk = models.CompositePrimaryKey("row", "place")
    row = models.IntegerField()
    place = models.CharField(max_length=8)
    name = models.CharField(max_length=32, unique=True)
    price = models.IntegerField(default=0)


class Step(RecordedWay):
    recorded_as = PartOf("folder")

    folder = models.ForeignKey(Folder, models.CASCADE, related_name="steps")
    name = models.CharField(max_length=32)

    class Meta:
        app_label = "ways"
        order_with_respect_to = "folder"


class Pin(RecordedWay):
    """A row that is recorded as part of the document of a `Folder`.

    If the folder is deleted, Django moves the pin to the folder with the primary key 1. This folder
    can be missing, because the foreign key has no constraint in the database.
    """

    recorded_as = PartOf("folder")

    folder = models.ForeignKey(
        Folder, models.SET_DEFAULT, default=1, db_constraint=False, related_name="pins"
    )
    name = models.CharField(max_length=32)


class Kept(RecordedWay):
    recorded_as = PartOf("folder")

    folder = models.ForeignKey(Folder, models.PROTECT, related_name="+")


class Limited(RecordedWay):
    recorded_as = PartOf("folder")

    folder = models.ForeignKey(Folder, models.RESTRICT, related_name="+")


class Loose(RecordedWay):
    """A document with a foreign key to a `Folder`. PostgreSQL does not check this foreign key."""

    recorded_as = Kind("product-task", id="name")

    folder = models.ForeignKey(Folder, models.DO_NOTHING, db_constraint=False, related_name="+")
    name = models.CharField(max_length=32, unique=True)


class Remark(RecordedWay):
    """A document with a generic foreign key to any row."""

    recorded_as = Kind("product-task", id="key")

    key = models.UUIDField(default=uuid4, unique=True)
    text = models.TextField(default="")
    # Without a constraint, because tables of apps without migrations are created first.
    target_type = models.ForeignKey(ContentType, models.CASCADE, db_constraint=False)
    target_id = models.BigIntegerField()
    target = GenericForeignKey("target_type", "target_id")


class Account(RecordedWay):
    """A document whose primary key is generated by Python, and whose id is another column."""

    recorded_as = Kind("realty-info", id="number")

    id = models.UUIDField(primary_key=True, default=uuid4)
    number = models.CharField(max_length=32, unique=True)
    sum = models.DecimalField(max_digits=30, decimal_places=10, default=0)


class Country(RecordedWay):
    """A document whose id is a primary key that people choose."""

    recorded_as = Kind("realty-info")

    code = models.CharField(max_length=32, primary_key=True)
    name = models.CharField(max_length=100, default="")


class Twin(RecordedWay):
    """A document whose primary key is a one-to-one relation to a `Country`."""

    recorded_as = Kind("product-task", id="country_id")

    country = models.OneToOneField(Country, models.CASCADE, primary_key=True)
    name = models.CharField(max_length=100, default="")


class Measured(RecordedWay):
    """A document with columns that the database fills."""

    recorded_as = Kind("product-task", id="name")

    name = models.CharField(max_length=32, unique=True)
    loud = models.GeneratedField(
        expression=Upper(F("name")), output_field=models.TextField(), db_persist=True
    )
    created = models.DateTimeField(db_default=Now())
    changed = models.DateTimeField(auto_now=True)
    extra = models.JSONField(default=dict)
    count = models.IntegerField(db_default=3)


class VisibleMemos(RecordedQuerySet["Memo"]):
    def hide(self) -> int:
        return self.update(hidden=True)


class VisibleMemoManager(models.Manager.from_queryset(VisibleMemos)):  # type: ignore[misc]
    def get_queryset(self) -> Any:
        return super().get_queryset().filter(hidden=False)


class Memo(RecordedWay):
    """A document whose default manager hides some rows."""

    recorded_as = Kind("product-task", id="name")

    name = models.CharField(max_length=32, unique=True)
    hidden = models.BooleanField(default=False)

    objects: ClassVar[Any] = VisibleMemoManager()
    all_rows = RecordedQuerySet.as_manager()


class RecordedWithNote(RecordedWay):
    """An abstract model with the column `note`, which snapshots of its subclasses contain, too."""

    note = models.TextField(default="")

    class Meta:
        abstract = True
        app_label = "ways"


class Letter(RecordedWithNote):
    recorded_as = Kind("product-task", id="name")

    name = models.CharField(max_length=32, unique=True)


class Shout(RecordedWay):
    """A document whose id is a generated column."""

    recorded_as = Kind("product-task", id="loud")

    name = models.CharField(max_length=32)
    loud = models.GeneratedField(
        expression=Upper(F("name")),
        output_field=models.CharField(max_length=32),
        db_persist=True,
        unique=True,
    )


class Album(RecordedWay):
    """A document. `db_table` of the model names the table together with its schema."""

    recorded_as = Kind("product-task", id="name")

    name = models.CharField(max_length=32, unique=True)
    number = models.IntegerField(default=0)
    owner = models.ForeignKey(Owner, models.SET_NULL, null=True)

    class Meta:
        app_label = "ways"
        db_table = '"public"."album"'


class Photo(RecordedWay):
    """A part of the document of an `Album`. `db_table` names the table together with its schema."""

    recorded_as = PartOf("album")

    album = models.ForeignKey(Album, models.CASCADE, null=True, related_name="photos")
    name = models.CharField(max_length=32, unique=True)

    class Meta:
        app_label = "ways"
        db_table = '"public"."photo"'


KINDS: tuple[type[Recorded], ...] = (
    Tag,
    Folder,
    Seat,
    Loose,
    Remark,
    Account,
    Country,
    Twin,
    Measured,
    Memo,
    Letter,
    Shout,
    Album,
)
