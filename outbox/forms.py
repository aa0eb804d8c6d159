"""Forms of Django's admin that change a document of several rows."""

from __future__ import annotations

from typing import Any

from django.db import router

from outbox.recorded import as_one


class OneVersion:
    """A mixin of a ModelAdmin with inlines, before ModelAdmin: what a form changes is one version
    of the document."""

    model: Any

    def changeform_view(self, *args: Any, **options: Any) -> Any:
        """As Django's, in one block."""
        with as_one(router.db_for_write(self.model)):
            return super().changeform_view(*args, **options)  # type: ignore[misc]
