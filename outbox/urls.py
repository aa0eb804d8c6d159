"""The addresses of the outbox: `path("outbox/", include("outbox.urls"))`."""

from django.urls import path

from outbox.views import metrics, versions

app_name = "outbox"
urlpatterns = [
    path("metrics", metrics, name="metrics"),
    path("versions", versions, name="versions"),
]
