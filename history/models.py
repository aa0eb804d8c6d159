"""The tables: one partitioned model per kind of entity, made from its declaration, and people."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _
from psqlextra.models import PostgresPartitionedModel
from psqlextra.types import PostgresPartitioningMethod

from history.entities import ENTITIES, Entity
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH


def _version_model(entity: Entity) -> type[PostgresPartitionedModel]:
    """The model of an entity's *_aud table: range-partitioned by updated_at, written by COPY."""
    meta: dict[str, object] = {"db_table": entity.table, "verbose_name": entity.title}
    fields: dict[str, object] = {
        "id": models.CharField(max_length=ID_LENGTH),
        "version": models.IntegerField(),
        "data": models.JSONField(),
        "updated_at": models.DateTimeField(),
        "client_id": models.CharField(max_length=CLIENT_ID_LENGTH),
        "author": models.CharField(max_length=AUTHOR_LENGTH, null=True),
        "type": models.IntegerField(),
    }
    if not entity.root:
        fields["product_instance_id"] = models.CharField(max_length=ID_LENGTH)
        meta["indexes"] = [
            models.Index(
                "product_instance_id", "updated_at", name=f"{entity.table.removesuffix('_aud')}_app"
            )
        ]
    return type(
        entity.model_name,
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


VERSION_MODELS = {entity.name: _version_model(entity) for entity in ENTITIES}


class Person(models.Model):
    """Who stands behind a login: a person or a service. Filled by `manage.py people import`."""

    class Kind(models.TextChoices):
        PERSON = "person", _("person")
        SERVICE = "service", _("service")

    login = models.CharField(_("login"), max_length=AUTHOR_LENGTH, primary_key=True)
    full_name = models.CharField(_("full name"), max_length=200)
    kind = models.CharField(_("kind"), max_length=10, choices=Kind, default=Kind.PERSON)

    class Meta:
        verbose_name = _("person")
        verbose_name_plural = _("people")
        ordering = ["full_name"]

    def __str__(self) -> str:
        return self.full_name
