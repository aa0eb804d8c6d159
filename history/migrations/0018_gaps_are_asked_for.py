"""`gaps heal` asks in Kafka: when, is in the gap. The tables of the answers over HTTP, and of what
each service brings, stay as they are until the next release."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("history", "0016_child_homes")]
    operations = [
        migrations.AddField(
            model_name="versiongap", name="asked_at", field=models.DateTimeField(null=True)
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel(name="GapSource"),
                migrations.DeleteModel(name="GapAnswer"),
                migrations.DeleteModel(name="RecoveredVersion"),
                migrations.DeleteModel(name="DayShare"),
            ]
        ),
    ]
