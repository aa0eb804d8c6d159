"""Functions that are imported at their first call."""

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string


def import_lazily(path: str) -> Callable[..., Any]:
    """Return a function that imports and calls the function at this dotted path.

    Use it for receivers of signals, and connect them with weak=False.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return import_string(path)(*args, **kwargs)

    return call
