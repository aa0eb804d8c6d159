"""Each change in the example shop is recorded as one version, with its author."""

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from tests.outbox import recorded_versions


def list_versions(document: str) -> list[tuple[int, str | None, Any]]:
    """Return number, author and snapshot of each version of a document such as `order/1`."""
    return [
        (version.version, version.author, json.loads(version.data))
        for version in recorded_versions.load_versions()
        if version.document == document
    ]


def read_form(client: Client, address: str, **changes: str) -> dict[str, str]:
    """Return the fields of a form of the admin with their present values and some changes."""
    page = client.get(address)
    assert page.status_code == 200
    fields: dict[str, str] = {}
    main_form = page.context["adminform"].form
    forms = [
        main_form,
        *(inline for s in page.context["inline_admin_formsets"] for inline in s.formset),
    ]
    forms += [inline.formset.management_form for inline in page.context["inline_admin_formsets"]]
    for form in forms:
        for bound in form:
            value = bound.value()
            if value not in (None, False):
                fields[bound.html_name] = "on" if value is True else str(value)
    unknown = set(changes) - set(fields)
    assert not unknown
    return {**fields, **changes}


def find_address(model: str, **lookup: str) -> str:
    from django.apps import apps

    row = apps.get_model("orders", model).objects.get(**lookup)
    return f"/admin/orders/{model}/{row.pk}/change/"


def test_price_changed_in_admin_becomes_a_version_with_the_user_as_author(anna: Client) -> None:
    page = find_address("product", sku="KETTLE-17")
    response = anna.post(page, read_form(anna, page, price="2590.00"))
    assert response.status_code == 302
    [(_, _, before), (number, author, after)] = list_versions("product/KETTLE-17")
    assert (number, author) == (2, "anna")
    assert (before["price"], after["price"]) == ("2490.00", "2590.00")


def test_changes_of_order_and_items_in_one_form_become_one_version(anna: Client) -> None:
    page = find_address("order", number="2026-1041")
    changes = {"status": "paid", "items-0-quantity": "2", "items-1-quantity": "6"}
    assert anna.post(page, read_form(anna, page, **changes)).status_code == 302
    [(_, _, before), (number, author, after)] = list_versions("order/2026-1041")
    assert (number, author) == (2, "anna")
    assert [item["quantity"] for item in before["items"]] == [1, 4]
    assert [item["quantity"] for item in after["items"]] == [2, 6]
    assert (before["total"], after["total"]) == ("4050.00", "7320.00")


def test_order_becomes_another_document_when_its_number_changes(anna: Client) -> None:
    page = find_address("order", number="2026-1041")
    assert anna.post(page, read_form(anna, page, number="2026-9999")).status_code == 302
    old, new = list_versions("order/2026-1041"), list_versions("order/2026-9999")
    assert [(number, author, data is None) for number, author, data in old] == [
        (1, "boris", False),
        (2, "anna", True),
    ]
    assert [(number, author, len(data["items"])) for number, author, data in new] == [
        (1, "anna", 2)
    ]


def test_product_becomes_another_document_when_its_sku_changes(anna: Client) -> None:
    page = find_address("product", sku="KETTLE-17")
    assert anna.post(page, read_form(anna, page, sku="KETTLE-18")).status_code == 302
    assert [data is None for _, _, data in list_versions("product/KETTLE-17")] == [False, True]
    assert [data["sku"] for _, _, data in list_versions("product/KETTLE-18")] == ["KETTLE-18"]


def test_demo_data_has_an_order_with_several_versions(shop: str) -> None:
    versions = list_versions("order/2026-1042")
    assert [(number, author) for number, author, _ in versions] == [
        (1, "boris"),
        (2, "anna"),
        (3, "anna"),
    ]
    assert [item["sku"] for item in versions[0][2]["items"]] == [
        "COFFEE-1",
        "GRINDER-2",
        "FILTER-100",
    ]
    call_command("demo_data", verbosity=0)
    assert list_versions("order/2026-1042") == versions


@pytest.mark.parametrize("language, word", [("en", "Products and orders"), ("ru", "Товары и")])
def test_shop_speaks_english_and_russian(anna: Client, language: str, word: str) -> None:
    page = anna.get("/admin/", headers={"accept-language": language}).content.decode()
    assert word in page


def test_shop_migrations_are_complete(installed: str) -> None:
    call_command("makemigrations", "orders", "--check", "--dry-run", verbosity=0)
    call_command("check", fail_level="WARNING")
