"""The OpenAPI document and the page that shows it. Both need no log-in: they contain no data."""

from __future__ import annotations

from typing import Any

from drf_spectacular.renderers import OpenApiJsonRenderer2
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request

from history.api.call import Options
from history.api.components import COMPONENTS


class Open(Options):
    """What everybody may see, in English only, whatever language is asked for."""

    authentication_classes = []
    permission_classes = [AllowAny]

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Content-Language"] = "en"
        return answer


class Schema(Open, SpectacularAPIView):
    """GET /api/schema/: OpenAPI 3.1 in JSON."""

    renderer_classes = [OpenApiJsonRenderer2]
    custom_settings = {"APPEND_COMPONENTS": {"schemas": COMPONENTS}}


class Docs(Open, SpectacularSwaggerSplitView):
    """GET /api/docs/: Swagger UI, served from here, with its script in a separate file."""

    template_name = "history/swagger.html"
