"""Packed days. The columns of blocks are added by history.kind_tables, to each table there is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("history", "0019_no_child_homes")]
    operations = [
        migrations.AddField(
            model_name="sealedday",
            name="packed_at",
            field=models.DateTimeField(null=True),
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
    ]
