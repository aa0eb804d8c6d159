"""The settings of the shop: an ordinary Django service with the app outbox."""

import os
from pathlib import Path

from django.utils.translation import gettext_lazy as _
from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = os.environ["SHOP_SECRET_KEY"]
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = [
    "orders",
    "outbox",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "outbox.middleware.author_middleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
KAFKA = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
TOPICS = {"order": "shop.order", "product": "shop.product"}
OUTBOX = {"CLIENT_ID": "shop", "TOPICS": TOPICS, "KAFKA": KAFKA}

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

_database = conninfo_to_dict(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.get("dbname", ""),
        **{name.upper(): _database.get(name, "") for name in ("host", "port", "user", "password")},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("ru", _("Russian"))]
LOCALE_PATHS = [Path(__file__).parents[1] / "orders" / "locale"]
TIME_ZONE = "Europe/Moscow"
USE_TZ = True
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True
# Browsers share cookies among all ports of a host, and Annals may run on another port of this host.
# So the cookies of the shop have their own names.
SESSION_COOKIE_NAME = "shop_session"
CSRF_COOKIE_NAME = "shop_csrf"
LANGUAGE_COOKIE_NAME = "shop_language"
