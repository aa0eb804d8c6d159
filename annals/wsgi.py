"""The WSGI application."""

import gc
import os
import sys

from django.core.wsgi import get_wsgi_application

from annals.web.start import prepare_environment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
_is_configured = os.environ.get("DATABASE_URL") or "ANNALS_DEMO" in os.environ
if not _is_configured and "annals.server" not in sys.modules:
    sys.exit(
        "annals: DATABASE_URL is unset, which starts the demo with its well-known logins, and this "
        "server does not say who can reach it. Set DATABASE_URL for production, or start gunicorn "
        "with --config python:annals.server."
    )
prepare_environment(["runserver"])
application = get_wsgi_application()

from functools import partial  # noqa: E402 - all of them need Django's settings
from importlib import import_module  # noqa: E402

from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402

from annals.access.grants import LIMITS, WEB, list_web_rights  # noqa: E402
from annals.web.utf8_request import Utf8Request  # noqa: E402
from history.store.database import privileges, session  # noqa: E402
from ingest.store.session import open_connection  # noqa: E402

# Statements of the web have a time limit; commands may take long. Statements of the web look up a
# few rows in each day: with the default random_page_cost PostgreSQL would read small days whole.
_options = connections["default"].settings_dict["OPTIONS"]
_limit_ms = settings.ANNALS.request_seconds * 1000
_options["options"] = " ".join(
    (
        session.build_options(LIMITS[WEB].settings),
        _options["options"],
        session.build_options({"statement_timeout": f"{_limit_ms}", "random_page_cost": "1.1"}),
    )
)
if not settings.ANNALS.demo:
    privileges.warn_in_background(partial(open_connection, "annals-check"), list_web_rights())
# Imported now, because otherwise the first request imports all pages while others wait.
import_module(settings.ROOT_URLCONF)
gc.freeze()  # objects that exist now stay for ever, so collections need not examine them
gc.set_threshold(50_000)  # a page makes thousands of objects, but no reference cycles
application.request_class = Utf8Request
