"""The permissions that views of the API require."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from history.policy.masking.viewer import has_permission

READ_HISTORY = "history.view_history"
READ_COMPLETENESS = "ingest.view_completeness"


class HasViewPermission(BasePermission):
    """Allows a login if it has the `permission` of the view."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return has_permission(request.user, view.permission)
