"""Django's settings, derived from annals.configuration.env."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy as _
from psycopg.conninfo import conninfo_to_dict

from annals.access import client_address
from annals.access.oidc import providers
from annals.configuration import env
from annals.operations import logs
from history.store.database import session

ROOT = Path(__file__).resolve().parent.parent
ANNALS = env.read_settings(os.environ)

# Read or generated at its first use, so that a process that does not use it creates no file.
SECRET_KEY = SimpleLazyObject(partial(env.load_secret_key, ANNALS))
DEBUG = False
ALLOWED_HOSTS = list(ANNALS.allowed_hosts)
ROOT_URLCONF = "annals.urls"
WSGI_APPLICATION = "annals.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "history",
    "ingest",
    "annals",
    "annals.access",
    "history.admin.site.apps.ScreensConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "psqlextra",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]

MIDDLEWARE = [
    "annals.web.middleware.no_store.NoStoreMiddleware",
    "annals.web.middleware.probes.ProbeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "annals.web.middleware.request_log.RequestLogMiddleware",
    "annals.web.middleware.schema.SchemaMiddleware",
    "annals.web.middleware.journal.JournalMiddleware",
    "annals.web.middleware.deadline.DeadlineMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "annals.web.middleware.language.LanguageMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "annals.web.middleware.session_limit.SessionLimitMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "annals.web.middleware.compression.CompressionMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "history.admin.site.access.add_access_and_zone",
            ],
            "builtins": ["history.common.moment_filter"],
        },
    }
]


SESSION = session.build_options({**session.SESSION, "plan_cache_mode": "force_generic_plan"})

# The connections of a web process: one for each thread, and two for work between requests.
CONNECTIONS = env.WEB_THREADS + 2


def _make_database(url: str) -> dict[str, Any]:
    """Convert a URI of libpq to Django's settings of a database."""
    parts = conninfo_to_dict(url)
    names = {"dbname": "NAME"} | {
        name: name.upper() for name in ("user", "password", "host", "port")
    }
    return {
        "ENGINE": "psqlextra.backend",
        **{django: parts.pop(libpq, "") for libpq, django in names.items()},
        "OPTIONS": {
            "application_name": "annals",
            # psycopg prepares nothing by itself: history.timeline prepares statements explicitly.
            "prepare_threshold": 1_000_000_000,
            "connect_timeout": 5,
            **parts,
            "options": f"{SESSION} {parts.get('options', '')}".strip(),
            "pool": {"min_size": 0, "max_size": CONNECTIONS, "timeout": 10},
        },
    }


DATABASES = {"default": _make_database(ANNALS.database_url or "postgresql:///annals")}
POSTGRES_EXTRA_AUTO_EXTENSION_SET_UP = False
POSTGRES_EXTRA_DB_BACKEND_BASE = "history.store.database"

# Settings of librdkafka, for the consumer and for the producer of the simulator.
KAFKA = {
    "bootstrap.servers": ANNALS.kafka_bootstrap_servers or "",
    **env.read_librdkafka_settings(os.environ, ANNALS.librdkafka_file),
}

# A consumer calls this class while its group does not assign it partitions. With brokers other than
# the embedded one, it does nothing.
STUCK_GROUP = "annals.embedded.stuck_group.StuckGroupRemover"

# The identity providers, in the order of their file.
OIDC_PROVIDERS = providers.load_providers(ANNALS)
# How many logins one browser can begin at a time, in several tabs. One cookie holds them all.
OIDC_MAX_STATES = 4

TRUSTED_PROXIES = client_address.load_trusted_proxies(ANNALS)
AUTHENTICATION_BACKENDS = [
    *(["annals.access.local_logins.DemoLogins"] if ANNALS.demo else []),
    "annals.access.local_logins.BreakGlassLogins",
    "annals.access.oidc.backend.ProviderBackend",
]
if ANNALS.demo:  # each call of the API verifies a password
    PASSWORD_HASHERS = ["annals.access.local_logins.DemoHasher"]
# How many seconds a link of `annals breakglass` is valid.
PASSWORD_RESET_TIMEOUT = 600
LOGIN_URL = "admin:login"

LANGUAGE_CODE = "ru"
LANGUAGES = [("ru", _("Russian")), ("en", _("English"))]
LOCALE_PATHS = [
    ROOT / "annals" / "access" / "locale",
    ROOT / "history" / "locale",
    ROOT / "ingest" / "locale",
]
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

# A request with more parameters gets 400. Django's default is 1,000.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2500

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; font-src 'self';"
    " img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURE_REFERRER_POLICY = "same-origin"
SESSION_ENGINE = "annals.access.sessions"
SESSION_COOKIE_HTTPONLY = True
# With this prefix, browsers accept the cookies only from this host, and not from another host of
# its domain.
COOKIE_PREFIX = "__Host-" if ANNALS.https else ""
SESSION_COOKIE_NAME = f"{COOKIE_PREFIX}sessionid"
CSRF_COOKIE_NAME = f"{COOKIE_PREFIX}csrftoken"
SESSION_COOKIE_AGE = ANNALS.session_hours * 3600
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = ANNALS.https
SECURE_HSTS_SECONDS = 31_536_000 if ANNALS.https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = ANNALS.https
# The list of hosts that browsers ship with is public, so no host of a bank's network is in it.
SILENCED_SYSTEM_CHECKS = ["security.W021"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ANNALS.https else None
X_FRAME_OPTIONS = "DENY"

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "annals.access.oidc.bearer.BearerAuthentication",
        *(["rest_framework.authentication.BasicAuthentication"] if ANNALS.demo else []),
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["history.api.access.HasViewPermission"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "history.api.answers.SingleRendererNegotiation",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],  # for the schema
    "DEFAULT_PARSER_CLASSES": [],
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "history.api.errors.make_error_answer",
}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Annals",
    "VERSION": "1",
    "DESCRIPTION": "The history of loan applications: who changed what, when, from what to what.",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    # A docstring explains the code; the summary of a call explains the call.
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,
    "POSTPROCESSING_HOOKS": [],  # history.api.schema needs no changes
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "displayRequestDuration": True},
    "ENABLE_DJANGO_DEPLOY_CHECK": False,
}

LOGGING = logs.make_logging_config(ANNALS.log_level, ANNALS.log_format)
