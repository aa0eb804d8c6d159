"""The admin site of the support screens: history first, then the models a login may see."""

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

from history import labels
from history.addresses import ID, KIND
from history.admin.site.access import PERMISSION, May, holds, visible, was_given
from history.base import zone
from history.entities import ENTITIES, ROOT, Entity
from history.models import FieldLabel, Person
from history.requests import worker_shares


class PersonAdmin(ModelAdmin):  # type: ignore[type-arg]
    """For one or two people; `annals people import` loads a file."""

    list_display = ("login", "full_name", "kind")
    list_filter = ("kind",)
    search_fields = ("login", "full_name")
    ordering = ("login",)

    def save_model(self, request: HttpRequest, obj: Person, form: Any, change: bool) -> None:
        """What somebody saves here, no login changes any more."""
        obj.written_by = ""
        super().save_model(request, obj, form, change)


class FieldLabelForm(forms.ModelForm):  # type: ignore[type-arg]
    """Refuses what the catalogue cannot use."""

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        entity, path, kind = (given.get(name, "") for name in ("entity", "path", "kind"))
        if problems := labels.problems(entity, path, kind, sensitive=False):
            raise forms.ValidationError(problems)
        return given


class FieldLabelAdmin(ModelAdmin):  # type: ignore[type-arg]
    """Marks come with a file of labels (`annals labels load`)."""

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


class OwnFilters(ModelAdmin):  # type: ignore[type-arg]
    """Django lets the address of a list ask for any field of its model."""

    list_per_page = 100
    show_full_result_count = False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The title is the name of the list: Django's sentence has a wrong case in Russian."""
        for key in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.to_python(key)
            except ValidationError:  # no row has it, and Django fails on it
                raise BadRequest from None
        named = {"title": capfirst(str(self.opts.verbose_name_plural))}
        return super().changelist_view(request, named | (extra_context or {}))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Titled like the list, for the same reason."""
        named = {"title": capfirst(str(self.opts.verbose_name))}
        return super().changeform_view(request, object_id, form_url, named | (extra_context or {}))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:  # noqa: ARG002
        """Whether a filter of the page makes this lookup."""
        return any(lookup in self._lookups(each) for each in self.list_filter)

    def _lookups(self, name: Any) -> frozenset[str]:
        """What a filter puts into the address. name: a field, also with its filter, or a filter of
        no field. Raises FieldDoesNotExist."""
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
class Screen:
    """A page of its own on the site. sends: it has a form that is sent. home: the first page of who
    may open it and reads no history. title: empty where no list names the page."""

    address: str
    name: str
    title: Promise | str
    may: May
    view: View
    sends: bool
    home: bool


@dataclass(frozen=True, slots=True)
class SubjectLink:
    """A link on the timeline, for those who may open its page. url: given kind and id."""

    title: Promise
    may: May
    url: Callable[[Entity, str], str]


def _visible(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap a page: it counts as a request of its login, which has its share of the threads."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with worker_shares.of_login(request.user.pk):
            return visible(view(request, *args, **kwargs))

    return shown


def _not_ours(each: URLResolver | URLPattern) -> bool:
    """Nobody changes a password here: the web's database login may not."""
    return str(each.pattern).startswith(("password_change/", "r/"))


def _of_a_model(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A page of a ModelAdmin. PostgreSQL refuses a NUL in filters and keys."""

    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        given = (*request.GET.lists(), *request.POST.lists(), ("", map(str, kwargs.values())))
        if any("\0" in f"{name}{value}" for name, its in given for value in its):
            raise BadRequest
        return view(request, *args, **kwargs)

    return _visible(checked)


class AnnalsSite(admin.AdminSite):
    """Django's admin with the history screens in front. They are views of this site."""

    site_header = "Annals"
    site_title = "Annals"
    index_title = _("History")
    site_url = None
    enable_nav_sidebar = False

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        # Imported late: they ask for the site.
        from history.admin.pages import gaps

        self.screens: list[Screen] = []
        self.subject_links: list[SubjectLink] = []
        self.register(Person, PersonAdmin)
        self.register(FieldLabel, FieldLabelAdmin)
        self.add_screen(
            address="gaps/",
            name="gaps",
            title=_("Versions that never arrived"),
            permission="ingest.view_gap",
            view=gaps.page,
        )

    def register(
        self, model_or_iterable: Any, admin_class: type[Any] | None = None, **options: Any
    ) -> None:
        """As Django's; whatever the class, its list takes the filters of its page only."""
        given = admin_class or admin.ModelAdmin
        limited = type(given.__name__, (OwnFilters, given), {"__module__": given.__module__})
        super().register(model_or_iterable, limited, **options)

    def get_urls(self) -> list[URLResolver | URLPattern]:
        # Imported late, as above.
        from history.admin.pages import (
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
            path("history/", search.page, name="history_search"),
            path("client/", client.page, name="history_client"),
            path(f"{ENTITY}/compare/", compare.page, name="history_compare"),
            path(f"{ENTITY}/field/", field.page, name="history_field"),
            path(f"{ENTITY}/newer/", newer.page, name="history_newer"),
            path(f"{ENTITY}/state/", state.page, name="history_state"),
            path(f"{ENTITY}/versions/", timeline.page, name="history_versions"),
            path(f"{ENTITY}/versions/<int:version>/unmask/", unmask.page, name="history_unmask"),
            path(f"{ENTITY}/versions/<int:version>/", snapshot.page, name="history_snapshot"),
            path(f"{ENTITY}/", timeline.page, name="history_timeline"),
        ]
        if ROOT is not None:
            views += [
                path(f"at/{ID}/", moment.page, name="history_application_at"),
                path(f"applications/{ID}/", timeline.application, name="history_application"),
            ]
        views += [path(one.address, one.view, name=one.name) for one in self.screens]
        sending = (unmask.page, *(one.view for one in self.screens if one.sends))
        for view in views:
            own = view.callback if view.callback in sending else require_safe(view.callback)
            view.callback = super().admin_view(_visible(own))
        switches = [
            path("language/", require_POST(set_language), name="language"),
            path("zone/", require_POST(zone.choose), name="zone"),
        ]
        of_django = (each for each in super().get_urls() if not _not_ours(each))
        return [*switches, *views, *of_django]

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Any:
        """Django wraps each page of its own with this."""
        return super().admin_view(_of_a_model(view), cacheable)

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A password that is refused is 401, by which refused logins are counted and logged."""
        answer = super().login(request, extra_context)
        if request.method == "POST" and answer.status_code == 200:
            answer.status_code = 401
        return answer

    def add_screen(
        self,
        address: str,
        name: str,
        title: Promise | str,
        permission: str,
        view: View,
        *,
        superusers: bool = True,
        sends: bool = False,
        home: bool = False,
    ) -> None:
        """Add a page of an app that this one must not import. Call it from that app's `admin`
        module: it is loaded before the addresses. The page needs the permission. superusers:
        whether they have it as they have all others. sends, home: see Screen."""
        may = holds(permission) if superusers else was_given(permission)

        @wraps(view)
        def checked(request: HttpRequest) -> HttpResponseBase:
            if not may(request.user):
                raise PermissionDenied
            return view(request)

        self.screens.append(Screen(address, name, title, may, checked, sends, home))

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> Any:
        """Django's list of models, made when a page shows it."""
        return SimpleLazyObject(partial(super().get_app_list, request, app_label))

    def links_of(self, request: HttpRequest, entity: Entity, id: str) -> list[tuple[Promise, str]]:
        """Title and address of the links that the timeline of an entity shows to this login."""
        return [
            (link.title, link.url(entity, id))
            for link in self.subject_links
            if link.may(request.user)
        ]

    def freshness(self) -> dict[str, object]:
        """Up to when everything of all kinds is here, for history/freshness.html."""
        # Imported late, as above.
        from history import complete_to

        return {"complete": complete_to.read(ENTITIES)}

    def _lists(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Return the lists of models for the first page, without those that a screen leads to."""
        screens = {one.name for one in self.screens if one.may(request.user)}
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
        from history.admin.parts.cards import title
        from history.admin.parts.clerk import recent

        reads = request.user.has_perm(PERMISSION)
        if not reads and (
            home := [one for one in self.screens if one.home and one.may(request.user)]
        ):
            return home[0].view(request)  # type: ignore[return-value] # what Django sends on
        context = {
            "entities": [title(entity) for entity in ENTITIES] if reads else [],
            **(self.freshness() if reads else {}),
            **(recent.of_login(request) if reads else {}),
            "hide_finder": True,
            "lists": self._lists(request),
            "screens": [one for one in self.screens if one.title and one.may(request.user)],
            **(extra_context or {}),
        }
        return super().index(request, context)
