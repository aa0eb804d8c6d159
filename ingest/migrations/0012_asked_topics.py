"""Adds a table of the topics that do not exist, by the answers of the brokers."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0011_open_messages_of_earlier_releases")]
    operations = [
        migrations.CreateModel(
            name="AskedTopic",
            fields=[
                ("topic", models.CharField(max_length=249, primary_key=True, serialize=False)),
                ("absent", models.BooleanField()),
                ("asked_at", models.DateTimeField()),
            ],
            options={"db_table": "ingest_asked_topic", "default_permissions": ()},
        ),
    ]
