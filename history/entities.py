"""The kinds of entities whose versions Annals keeps. A new kind is one more line in ENTITIES."""

from __future__ import annotations

from dataclasses import dataclass

from history.day_rows import Column, Form

TOPIC_PREFIX = "top-storage.export."
MIGRATION_PREFIX = "top-storage.export.migration."
# Characters of the longest business key. Longer values are not searched for.
SEARCH_VALUE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of entity: its name in topics and addresses, and its title for people.

    The root kind is the application itself; every other kind names its application in
    productInstanceId. search: the business keys by which its application is found, each a name and
    a JSON pointer into the snapshot; a name may have several pointers. list_keys: the fields that
    identify the items of a list when two snapshots are compared; list_places: those for lists at
    given places.
    """

    name: str
    title: str
    title_ru: str
    root: bool = False
    search: tuple[tuple[str, str], ...] = ()
    list_keys: tuple[str, ...] = ("pid", "id")
    list_places: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def table(self) -> str:
        return self.name.replace("-", "_") + "_aud"

    @property
    def model_name(self) -> str:
        return self.name.title().replace("-", "") + "Aud"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of its table, in the canonical order; see history.day_rows."""
        child = () if self.root else (Column("product_instance_id", Form.TEXT),)
        return (
            Column("id", Form.TEXT),
            Column("version", Form.NUMBER),
            Column("updated_at", Form.MOMENT),
            Column("client_id", Form.TEXT),
            Column("author", Form.TEXT),
            Column("type", Form.NUMBER),
            *child,
            Column("data", Form.JSON),
        )

    @property
    def order(self) -> tuple[str, ...]:
        return ("id", "version", "updated_at")

    @property
    def called(self) -> tuple[str, str]:
        return ("id", "version")

    @property
    def closed(self) -> None:
        """A message may bring a version of any day."""

    @property
    def topics(self) -> tuple[str, str]:
        """The live topic and its migration twin."""
        return TOPIC_PREFIX + self.name, MIGRATION_PREFIX + self.name


# Business keys that more than one kind of document has, in the places where it has them.
REALTY_KEYS = (
    ("realtyCrmId", "/realtyCrmId"),
    ("submissionId", "/submissionId"),
    ("submissionId", "/encumbrance/submissionId"),
)
CLIENT_KEYS = (("clientId", "/clientId"),)

ENTITIES = (
    Entity(
        "product-instance",
        "Application",
        "Заявка",
        root=True,
        search=(("number", "/number"), *REALTY_KEYS),
    ),
    Entity("participant-role", "Participant", "Участник", search=CLIENT_KEYS),
    Entity("product-task", "Task", "Задача"),
    Entity("realty-info", "Realty", "Недвижимость", search=REALTY_KEYS),
    Entity("product-car", "Car", "Автомобиль"),
)

ROOT = next(entity for entity in ENTITIES if entity.root)
CHILDREN = tuple(entity for entity in ENTITIES if not entity.root)
BY_NAME = {entity.name: entity for entity in ENTITIES}
BY_TOPIC = {topic: entity for entity in ENTITIES for topic in entity.topics}
