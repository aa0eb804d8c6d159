"""The migrations say what the models say."""

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_no_model_differs_from_its_migrations(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        call_command("makemigrations", check=True, dry_run=True)
    except SystemExit:
        pytest.fail(f"models without a migration:\n{capsys.readouterr().out}")
