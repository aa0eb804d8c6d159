"""The OpenAPI document and the page that shows it. Anybody may read them without a login."""

from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer2
from drf_spectacular.settings import patched_settings
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request

from history.api import describe
from history.api.answer_schema import make_components
from history.api.base_view import ReadOnlyView


class PublicSchemaView(ReadOnlyView):
    """A view that needs no login and always answers in English."""

    authentication_classes = []
    permission_classes = [AllowAny]

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Content-Language"] = "en"
        return answer


class SchemaView(PublicSchemaView, SpectacularAPIView):
    """GET /api/schema/: OpenAPI 3.1 in JSON."""

    renderer_classes = [OpenApiJsonRenderer2]

    @extend_schema(exclude=True)
    def get(self, request: Request, *_: Any, **__: Any) -> HttpResponse:  # noqa: ARG002
        return HttpResponse(make_openapi_document(), content_type=OpenApiJsonRenderer2.media_type)


@cache
def make_openapi_document() -> bytes:
    """Make the OpenAPI document. Cached: it is large, and everybody may request it."""
    security_schemes: dict[str, Any] = {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "session": {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME},
    }
    if settings.ANNALS.demo:
        security_schemes["basic"] = {
            "type": "http",
            "scheme": "basic",
            "description": "In demo mode only.",
        }
    settings_override = {
        "APPEND_COMPONENTS": {
            "schemas": make_components(describe.ANSWERS),
            "securitySchemes": security_schemes,
        },
        "AUTHENTICATION_WHITELIST": [],
        "SECURITY": [{name: []} for name in security_schemes],
    }
    with patched_settings(settings_override):
        schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    document: bytes = OpenApiJsonRenderer2().render(schema)
    return document


class DocsView(PublicSchemaView, SpectacularSwaggerSplitView):
    """GET /api/docs/: Swagger UI. Annals serves all its files; the page has no inline script."""

    template_name = "history/swagger.html"
