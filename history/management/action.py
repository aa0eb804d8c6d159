"""Commands that import their action when they run, not for their help."""

from typing import Any, ClassVar

from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string


class ActionCommand(BaseCommand):
    """A command that calls the function at the dotted path `action` with itself and its options."""

    requires_system_checks = []
    action: ClassVar[str]

    def handle(self, *_: Any, **options: Any) -> None:
        import_string(self.action)(self, **options)
