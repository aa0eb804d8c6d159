"""Why a message came into quarantine, and of which service; what people ask for on the screens; what
the pages of operators show."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [("ingest", "0009_first_reasons"), ("ingest", "0010_operations")]
    dependencies = [("ingest", "0001_release_0_1_0")]
    operations = [
        migrations.AddField(
            "quarantined", "first_detail", models.TextField(blank=True, db_default="", default="")
        ),
        migrations.AddField(
            "quarantined",
            "first_reason",
            models.CharField(blank=True, db_default="", default="", max_length=40),
        ),
        migrations.CreateModel(
            "JobRun",
            [
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("started_at", models.DateTimeField()),
                ("outcome", models.CharField(max_length=200)),
            ],
            options={"db_table": "ingest_job_run", "default_permissions": ()},
        ),
        migrations.CreateModel(
            "Pace",
            [
                ("slot", models.IntegerField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("came", models.BigIntegerField()),
                ("read", models.BigIntegerField()),
                ("stored", models.BigIntegerField()),
            ],
            options={"db_table": "ingest_pace", "default_permissions": ()},
        ),
        migrations.AddField(
            "quarantined",
            "client_id",
            models.CharField(db_default="", max_length=64, verbose_name="service"),
        ),
        migrations.CreateModel(
            "QuarantineRequest",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False, verbose_name="ID",
                                           auto_created=True)),
                ("action", models.CharField(max_length=10,
                                            choices=[("retry", "retry"), ("discard", "discard")])),
                ("reason", models.CharField(max_length=40)),
                ("client_id", models.CharField(max_length=64)),
                ("field", models.CharField(max_length=200)),
                ("topic", models.CharField(max_length=249)),
                ("ids", ArrayField(base_field=models.BigIntegerField(), size=None)),
                ("last_id", models.BigIntegerField()),
                ("why", models.CharField(max_length=200)),
                ("login", models.CharField(max_length=150)),
                ("asked_at", models.DateTimeField()),
                ("done_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(default="", max_length=200)),
            ],
            options={
                "db_table": "ingest_quarantine_request",
                "permissions": [
                    ("ask_quarantine", "Can ask to retry and discard quarantined messages")
                ],
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        fields=["id"],
                        condition=models.Q(done_at=None),
                        name="ingest_request_open",
                    )
                ],
            },
        ),
    ]
