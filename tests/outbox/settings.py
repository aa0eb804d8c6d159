"""The Django settings of the test service, for its processes and for the tests that use it."""

import json
import os
import secrets

from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = secrets.token_urlsafe()
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.outbox.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "outbox",
    "outbox.inbox",
    "tests.outbox.shop",
    "tests.outbox.ways",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "outbox.middleware.author_middleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "admin:login"
STATIC_URL = "static/"
LANGUAGE_CODE = "en"
LOCALE_PATHS: list[str] = []
DATABASE_ROUTERS: list[str] = []
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

_URL = conninfo_to_dict(os.environ.get("DATABASE_URL", ""))
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("OUTBOX_TEST_DATABASE", _URL.get("dbname", "")),
        "USER": _URL.get("user", ""),
        "PASSWORD": _URL.get("password", ""),
        "HOST": _URL.get("host", ""),
        "PORT": str(_URL.get("port", "")),
    }
}

# The kinds of the message contract, so that Annals can decode the messages of the outbox.
ENTITIES = ("product-instance", "product-task", "realty-info")
OUTBOX = {
    "CLIENT_ID": "shop",
    "TOPICS": {name: f"top-storage.export.{name}" for name in ENTITIES},
    "KAFKA": {"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "")},
    **json.loads(os.environ.get("OUTBOX_TEST_SETTINGS", "{}")),
}
INBOX = {
    "GROUP": "shop",
    "KAFKA": {"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "")},
    **json.loads(os.environ.get("INBOX_TEST_SETTINGS", "{}")),
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["out"], "level": "INFO"},
}
