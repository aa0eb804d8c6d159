"""The OpenAPI document and the page that shows it. Both need no log-in: they contain no data."""

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

from history.api.call import Options
from history.api.components import COMPONENTS


class OpenSchema(Options):
    """What everybody may see, in English only, whatever language is asked for."""

    authentication_classes = []
    permission_classes = [AllowAny]

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Content-Language"] = "en"
        return answer


class Schema(OpenSchema, SpectacularAPIView):
    """GET /api/schema/: OpenAPI 3.1 in JSON."""

    renderer_classes = [OpenApiJsonRenderer2]

    @extend_schema(exclude=True)
    def get(self, request: Request, *_: Any, **__: Any) -> HttpResponse:  # noqa: ARG002
        return HttpResponse(document(), content_type=OpenApiJsonRenderer2.media_type)


@cache
def document() -> bytes:
    """The document. Made once in a process: it is large, and everybody may ask for it."""
    ways: dict[str, Any] = {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "session": {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME},
    }
    if settings.ANNALS.demo:
        ways["basic"] = {"type": "http", "scheme": "basic", "description": "In demo mode only."}
    changed = {
        "APPEND_COMPONENTS": {"schemas": COMPONENTS, "securitySchemes": ways},
        "AUTHENTICATION_WHITELIST": [],
        "SECURITY": [{name: []} for name in ways],
    }
    with patched_settings(changed):
        found = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    made: bytes = OpenApiJsonRenderer2().render(found)
    return made


class Docs(OpenSchema, SpectacularSwaggerSplitView):
    """GET /api/docs/: Swagger UI, served from here, with its script in a separate file."""

    template_name = "history/swagger.html"
