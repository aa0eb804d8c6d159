"""The URLs of the shop."""

from django.contrib import admin
from django.urls import include, path
from django.utils.translation import gettext_lazy as _
from django.views.generic import RedirectView

admin.site.site_title = admin.site.site_header = _("Example shop")
admin.site.index_title = _("Products and orders")
admin.site.site_url = None
admin.site.enable_nav_sidebar = False

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("outbox/", include("outbox.urls")),
]
