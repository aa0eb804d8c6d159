"""When `gaps heal` asked for a gap; packed days, whose columns history.store.kind_tables adds to each
table there is. Nothing counts any more what each service brings, nor notes how far `annals search
index` came: these tables stay until the next release."""

from django.db import migrations, models


class Migration(migrations.Migration):
    # 0015 and 0016 made tables that nothing reads; a database may have these.
    replaces = [
        ("history", "0018_gaps_are_asked_for"),
        ("history", "0019_no_child_homes"),
        ("history", "0020_packed_days"),
    ]
    dependencies = [("history", "0001_release_0_1_0")]
    operations = [
        migrations.AddField(
            model_name="versiongap", name="asked_at", field=models.DateTimeField(null=True)
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel("DayShare"),
                migrations.DeleteModel("IndexedPartition"),
            ]
        ),
        migrations.AddField(
            model_name="sealedday", name="packed_at", field=models.DateTimeField(null=True)
        ),
        migrations.CreateModel(
            name="PackDictionary",
            fields=[
                ("number", models.IntegerField(primary_key=True, serialize=False)),
                ("table", models.CharField(max_length=63)),
                ("content", models.BinaryField()),
                ("ratio", models.FloatField(null=True)),
                ("made_at", models.DateTimeField()),
            ],
            options={"db_table": "pack_dictionary", "default_permissions": ()},
        ),
        migrations.AlterField(
            model_name="fieldlabel",
            name="kind",
            field=models.CharField(
                choices=[
                    ("text", "text"),
                    ("money", "money"),
                    ("percent", "percent"),
                    ("date", "date"),
                    ("enum", "words from a list"),
                    ("person", "login of a person"),
                    ("technical", "technical"),
                ],
                default="text",
                max_length=10,
                verbose_name="kind",
            ),
        ),
    ]
