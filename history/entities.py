"""The kinds of entities whose versions Annals keeps. A new kind is one more line in ENTITIES."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC_PREFIX = "top-storage.export."
MIGRATION_PREFIX = "top-storage.export.migration."


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of entity: its name in topics and addresses, and its title for people.

    The root kind is the application itself; every other kind names its application in
    productInstanceId.
    """

    name: str
    title: str
    title_ru: str
    root: bool = False

    @property
    def table(self) -> str:
        return self.name.replace("-", "_") + "_aud"

    @property
    def model_name(self) -> str:
        return self.name.title().replace("-", "") + "Aud"

    @property
    def topics(self) -> tuple[str, str]:
        """The live topic and its migration twin."""
        return TOPIC_PREFIX + self.name, MIGRATION_PREFIX + self.name


ENTITIES = (
    Entity("product-instance", "Application", "Заявка", root=True),
    Entity("participant-role", "Participant", "Участник"),
    Entity("product-task", "Task", "Задача"),
    Entity("realty-info", "Realty", "Недвижимость"),
    Entity("product-car", "Car", "Автомобиль"),
)

ROOT = next(entity for entity in ENTITIES if entity.root)
CHILDREN = tuple(entity for entity in ENTITIES if not entity.root)
BY_NAME = {entity.name: entity for entity in ENTITIES}
BY_TOPIC = {topic: entity for entity in ENTITIES for topic in entity.topics}
