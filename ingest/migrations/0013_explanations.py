"""Adds columns for explanations: why a message is bad or a partition halted, as code and values."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0012_asked_topics")]
    operations = [
        migrations.AddField(
            "ledger", "halted_explanation", models.JSONField(null=True)
        ),
        migrations.AddField(
            "quarantined",
            "field",
            models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddField("quarantined", "explanation", models.JSONField(null=True)),
        migrations.AddField("quarantined", "first_explanation", models.JSONField(null=True)),
    ]
