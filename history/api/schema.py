"""The OpenAPI document and the page that shows it. Both are open: they hold no data."""

from __future__ import annotations

from drf_spectacular.renderers import OpenApiJsonRenderer2
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny

from history.api.components import COMPONENTS


class Schema(SpectacularAPIView):
    """GET /api/schema/: OpenAPI 3.1 in JSON."""

    renderer_classes = [OpenApiJsonRenderer2]
    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = []
    custom_settings = {"APPEND_COMPONENTS": {"schemas": COMPONENTS}}


class Docs(SpectacularSwaggerSplitView):
    """GET /api/docs/: Swagger UI, all of it ours, its script in a file of its own."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = []
    template_name = "history/swagger.html"
