"""Permissions of the calls."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from history.masking.viewer import may

READ_HISTORY = "history.view_history"
READ_COMPLETENESS = "ingest.view_completeness"


class MayRead(BasePermission):
    """Logins with the permission that the view names."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return may(request.user, view.permission)
