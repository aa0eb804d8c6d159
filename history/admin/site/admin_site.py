"""The admin site: history screens first, then the lists of models that a login may see."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin import ModelAdmin, helpers
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.functional import Promise, SimpleLazyObject
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.i18n import set_language

from history.admin.site.access import (
    PERMISSION,
    PermissionCheck,
    make_explicit_permission_check,
    make_permission_check,
    show_invisible_characters,
)
from history.common import worker_shares, zone
from history.common.addresses import ID, KIND
from history.kinds.entities import ENTITIES, ROOT, EntityKind
from history.models import FieldLabel, Person
from history.store.catalogue import labels


class PersonAdmin(ModelAdmin):  # type: ignore[type-arg]
    """The list of people, to add or edit single ones.

    For many people there is `annals people import`, which loads them from a file.
    """

    list_display = ("login", "full_name", "kind")
    list_filter = ("kind",)
    search_fields = ("login", "full_name")
    ordering = ("login",)

    def save_model(self, request: HttpRequest, obj: Person, form: Any, change: bool) -> None:
        """Save a person so that later log-ins do not change the name that was saved here."""
        obj.written_by = ""
        super().save_model(request, obj, form, change)


class FieldLabelForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form for a label. It refuses labels that the catalogue cannot use."""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        entity, path, kind = (cleaned.get(name, "") for name in ("entity", "path", "kind"))
        if problems := labels.find_label_problems(entity, path, kind, sensitive=False):
            raise forms.ValidationError(problems)
        return cleaned


class FieldLabelAdmin(ModelAdmin):  # type: ignore[type-arg]
    """The list of labels.

    It shows which fields are marked as sensitive. Only `annals labels load` changes these marks.
    """

    form = FieldLabelForm
    readonly_fields = ("sensitive",)
    list_display = ("path", "entity", "russian", "english", "kind", "sensitive")
    list_display_links = ("path",)
    list_filter = ("entity", "kind", "sensitive")
    search_fields = ("path", "russian", "english")

    def has_change_permission(self, request: HttpRequest, obj: FieldLabel | None = None) -> bool:
        return not (obj and obj.sensitive) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: FieldLabel | None = None) -> bool:
        return not (obj and obj.sensitive) and super().has_delete_permission(request, obj)


class OwnFiltersAdmin(ModelAdmin):  # type: ignore[type-arg]
    """A ModelAdmin with a list that accepts only the filters in `list_filter`.

    Without this class, Django accepts a filter by any field of the model in the address of a list.
    """

    list_per_page = 100
    show_full_result_count = False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the list with the model's plural as title. Django's title is wrong in Russian."""
        for key in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.to_python(key)
            # An object_id that cannot be the key of any row. Django does not handle this error.
            except ValidationError:
                raise BadRequest from None
        title_context = {"title": capfirst(str(self.opts.verbose_name_plural))}
        return super().changelist_view(request, title_context | (extra_context or {}))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show the form with the name of the model as title. Django's title is wrong in Russian."""
        title_context = {"title": capfirst(str(self.opts.verbose_name))}
        return super().changeform_view(
            request, object_id, form_url, title_context | (extra_context or {})
        )

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:  # noqa: ARG002
        """Return whether one of the page's filters uses this lookup."""
        return any(lookup in self._list_lookups(list_filter) for list_filter in self.list_filter)

    def _list_lookups(self, name: Any) -> frozenset[str]:
        """Return the parameters that a filter of the list puts into the address.

        Args:
            name: An entry of list_filter: a field, a field with its filter, or a filter alone.

        Raises:
            FieldDoesNotExist: The model does not have the field.
        """
        if isinstance(name, tuple):
            name = name[0]
        if not isinstance(name, str):
            return frozenset({name.parameter_name})
        related = self.opts.get_field(name).related_model
        if related is not None:
            key = related._meta.pk.name
            return frozenset({f"{name}__{key}__exact", f"{name}__isnull"})
        return frozenset({name, f"{name}__exact", f"{name}__isnull"})


ENTITY = f"history/{KIND}/{ID}"
View = Callable[[HttpRequest], HttpResponseBase]


@dataclass(frozen=True, slots=True)
class SitePage:
    """A page that an app adds to the site.

    Attributes:
        address: The path below the address of the site.
        name: The name of the URL.
        title: The title in the list of pages; empty to leave the page out of the list.
        has_permission: Returns whether a user may open the page.
        view: The view.
        has_form: Whether the page has a form to submit.
        is_start_page: Whether the page is the start page of logins that may not open the history.
            Other logins have the search as their start page.
    """

    address: str
    name: str
    title: Promise | str
    has_permission: PermissionCheck
    view: View
    has_form: bool
    is_start_page: bool


@dataclass(frozen=True, slots=True)
class SubjectLink:
    """A link on the timeline of a document, for logins that may open its target.

    `url` builds the address from the kind and id of the document.
    """

    title: Promise
    has_permission: PermissionCheck
    url: Callable[[EntityKind, str], str]


def _wrap_page(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap a page: count its requests toward the limit of the login, and show invisible characters.

    See history.common.worker_shares and `show_invisible_characters`.
    """

    @wraps(view)
    def show_page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with worker_shares.count_login_request(request.user.pk):
            return show_invisible_characters(view(request, *args, **kwargs))

    return show_page


def _is_unwanted(pattern: URLResolver | URLPattern) -> bool:
    """Return whether a page changes passwords, which the web's database login may not do."""
    return str(pattern.pattern).startswith(("password_change/", "r/"))


def _wrap_model_page(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap a page of a ModelAdmin so that a NUL in a filter or key is answered with 400.

    PostgreSQL refuses NUL.
    """

    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(view)
    def check_and_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        parameters = (*request.GET.lists(), *request.POST.lists(), ("", map(str, kwargs.values())))
        if any("\0" in f"{name}{value}" for name, values in parameters for value in values):
            raise BadRequest
        return view(request, *args, **kwargs)

    return _wrap_page(check_and_view)


class AnnalsSite(admin.AdminSite):
    """Django's admin site with the support screens."""

    site_header = "Annals"
    site_title = "Annals"
    index_title = _("History")
    site_url = None
    enable_nav_sidebar = False

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        # Imported late: these modules import the site.
        from history.admin.pages import gaps

        self.screens: list[SitePage] = []
        self.subject_links: list[SubjectLink] = []
        self.register(Person, PersonAdmin)
        self.register(FieldLabel, FieldLabelAdmin)
        self.add_screen(
            address="gaps/",
            name="gaps",
            title=_("Versions that never arrived"),
            permission="ingest.view_gap",
            view=gaps.show_gaps,
        )

    def register(
        self, model_or_iterable: Any, admin_class: type[Any] | None = None, **options: Any
    ) -> None:
        """Register a model. The list of the model accepts only the filters in `list_filter`."""
        base_class = admin_class or admin.ModelAdmin
        own_class = type(
            base_class.__name__,
            (OwnFiltersAdmin, base_class),
            {"__module__": base_class.__module__},
        )
        super().register(model_or_iterable, own_class, **options)

    def get_urls(self) -> list[URLResolver | URLPattern]:
        # Imported late, as above.
        from history.admin.pages import (
            changes,
            client,
            compare,
            field,
            moment,
            newer,
            search,
            snapshot,
            state,
            timeline,
            unmask,
        )

        views = [
            path("history/", search.show_search, name="history_search"),
            path("changes/", changes.show_changes, name="history_changes"),
            path("person/<id:login>/", changes.show_person, name="history_person_page"),
            path("client/", client.show_client, name="history_client"),
            path(f"{ENTITY}/compare/", compare.show_comparison, name="history_compare"),
            path(f"{ENTITY}/field/", field.show_field, name="history_field"),
            path(f"{ENTITY}/newer/", newer.count_newer, name="history_newer"),
            path(f"{ENTITY}/state/", state.show_state, name="history_state"),
            path(f"{ENTITY}/versions/", timeline.show_timeline, name="history_versions"),
            path(
                f"{ENTITY}/versions/<int:version>/unmask/",
                unmask.show_unmasked,
                name="history_unmask",
            ),
            path(
                f"{ENTITY}/versions/<int:version>/", snapshot.show_snapshot, name="history_snapshot"
            ),
            path(f"{ENTITY}/", timeline.show_timeline, name="history_timeline"),
        ]
        if ROOT is not None:
            views += [
                path(f"at/{ID}/", moment.show_moment, name="history_application_at"),
                path(f"applications/{ID}/", timeline.show_application, name="history_application"),
            ]
        views += [
            path(site_page.address, site_page.view, name=site_page.name)
            for site_page in self.screens
        ]
        sending = (
            unmask.show_unmasked,
            *(site_page.view for site_page in self.screens if site_page.has_form),
        )
        for view in views:
            callback = view.callback if view.callback in sending else require_safe(view.callback)
            view.callback = super().admin_view(_wrap_page(callback))
        switches = [
            path("language/", require_POST(set_language), name="language"),
            path("zone/", require_POST(zone.remember_choice), name="zone"),
        ]
        of_django = (pattern for pattern in super().get_urls() if not _is_unwanted(pattern))
        return [*switches, *views, *of_django]

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Any:
        """Wrap a page of Django's admin: check its methods and parameters, and count its requests.

        See `_wrap_model_page`.
        """
        return super().admin_view(_wrap_model_page(view), cacheable)

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the log-in page. Answer a wrong password with status 401.

        Django would answer 200, but the metrics count refused log-ins by the status.
        """
        response = super().login(request, extra_context)
        if request.method == "POST" and response.status_code == 200:
            response.status_code = 401
        return response

    def add_screen(
        self,
        address: str,
        name: str,
        title: Promise | str,
        permission: str,
        view: View,
        *,
        superusers: bool = True,
        has_form: bool = False,
        is_start_page: bool = False,
    ) -> None:
        """Add a page of a different Django app to the site.

        `history` must not import other apps, so the app with the page calls this method, from the
        app's `admin` module. Django loads that module before the URLconf.

        Args:
            address: The path below the address of the site.
            name: The name of the URL.
            title: The title in the list of pages; empty to leave the page out of the list.
            permission: The permission that the page needs.
            view: The view.
            superusers: Whether superusers may open the page without an explicit grant.
            has_form: Whether the page has a form to submit.
            is_start_page: Whether the page is the start page of logins that may not open the
                history.
        """
        has_permission = (
            make_permission_check(permission)
            if superusers
            else make_explicit_permission_check(permission)
        )

        @wraps(view)
        def check_and_view(request: HttpRequest) -> HttpResponseBase:
            if not has_permission(request.user):
                raise PermissionDenied
            return view(request)

        self.screens.append(
            SitePage(
                address=address,
                name=name,
                title=title,
                has_permission=has_permission,
                view=check_and_view,
                has_form=has_form,
                is_start_page=is_start_page,
            )
        )

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> Any:
        """Return Django's list of models, computed only if a page shows it."""
        return SimpleLazyObject(partial(super().get_app_list, request, app_label))

    def list_subject_links(
        self, request: HttpRequest, entity: EntityKind, id: str
    ) -> list[tuple[Promise, str]]:
        """Return the title and address of each link on a timeline that this login may follow."""
        return [
            (link.title, link.url(entity, id))
            for link in self.subject_links
            if link.has_permission(request.user)
        ]

    def get_completeness(self) -> dict[str, object]:
        """Return the variables of history/freshness.html: up to when the store is complete."""
        # Imported late, as above.
        from history.completeness import complete_to

        return {"complete": complete_to.read_completeness(ENTITIES)}

    def _list_models(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Return the models that the start page shows, each with the address of the model's list.

        Each model is a dict with the same keys as in the result of Django's `get_app_list`. A model
        is left out if the user may not see the list, or if a screen that the user may open already
        links to the list.
        """
        screens = {
            site_page.name for site_page in self.screens if site_page.has_permission(request.user)
        }
        return [
            model
            for app in self.get_app_list(request)
            for model in app["models"]
            if model["admin_url"]
            and getattr(self.get_model_admin(model["model"]), "screen", "") not in screens
        ]

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        # Imported late, as above.
        from history.admin.components.cards import get_kind_title
        from history.admin.reading_aids import opened_documents

        may_read = request.user.has_perm(PERMISSION)
        if not may_read and (
            start_pages := [
                site_page
                for site_page in self.screens
                if site_page.is_start_page and site_page.has_permission(request.user)
            ]
        ):
            return start_pages[0].view(request)  # type: ignore[return-value]
        context = {
            "entities": [get_kind_title(entity) for entity in ENTITIES] if may_read else [],
            **(self.get_completeness() if may_read else {}),
            **(opened_documents.make_recent_context(request) if may_read else {}),
            "hide_finder": True,
            "lists": self._list_models(request),
            "screens": [
                site_page
                for site_page in self.screens
                if site_page.title and site_page.has_permission(request.user)
            ],
            **(extra_context or {}),
        }
        return super().index(request, context)
