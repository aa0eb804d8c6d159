"""Which versions were stored after the feed of changes had passed their moments."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("history", "0003_proved_swaps")]
    operations = [
        migrations.CreateModel(
            name="FeedHorizon",
            fields=[
                (
                    "id",
                    models.SmallIntegerField(default=1, primary_key=True, serialize=False),
                ),
                ("given_to", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "feed_horizon",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(id=1), name="feed_horizon_one_row")
                ],
            },
        ),
        migrations.CreateModel(
            name="LateList",
            fields=[
                (
                    "id",
                    models.SmallIntegerField(default=1, primary_key=True, serialize=False),
                ),
                ("last_position", models.BigIntegerField()),
                ("removed_to", models.BigIntegerField()),
            ],
            options={
                "db_table": "late_list",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(id=1), name="late_list_one_row")
                ],
            },
        ),
        migrations.CreateModel(
            name="LateBatch",
            fields=[
                ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                ("entity", models.CharField(max_length=64)),
                ("ids", ArrayField(models.CharField(max_length=32))),
                ("moments", ArrayField(models.BigIntegerField())),
                ("versions", ArrayField(models.IntegerField())),
                ("noted_at", models.DateTimeField()),
            ],
            options={
                "db_table": "late_batch",
                "default_permissions": (),
                "indexes": [models.Index(fields=["noted_at"], name="late_batch_noted")],
            },
        ),
    ]
