"""The addresses of the outbox: `path("outbox/", include("outbox.urls"))`."""

from django.urls import path

from outbox.views import metrics

app_name = "outbox"
urlpatterns = [path("metrics", metrics, name="metrics")]
