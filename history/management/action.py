"""Commands whose action is imported when they run, not for their help."""

from typing import Any, ClassVar

from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string


class ActionCommand(BaseCommand):
    """action: the dotted path of a function, which takes the command and its options."""

    requires_system_checks = []
    action: ClassVar[str]

    def handle(self, *_: Any, **options: Any) -> None:
        import_string(self.action)(self, **options)
