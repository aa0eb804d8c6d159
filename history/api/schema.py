"""The OpenAPI document and the page that shows it. Both need no log-in: they contain no data."""

from __future__ import annotations

from drf_spectacular.renderers import OpenApiJsonRenderer2
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny

from history.api.call import Options
from history.api.components import COMPONENTS


class Schema(Options, SpectacularAPIView):
    """GET /api/schema/: OpenAPI 3.1 in JSON."""

    renderer_classes = [OpenApiJsonRenderer2]
    authentication_classes = []
    permission_classes = [AllowAny]
    custom_settings = {"APPEND_COMPONENTS": {"schemas": COMPONENTS}}


class Docs(Options, SpectacularSwaggerSplitView):
    """GET /api/docs/: Swagger UI, served from here, with its script in a separate file."""

    authentication_classes = []
    permission_classes = [AllowAny]
    template_name = "history/swagger.html"
