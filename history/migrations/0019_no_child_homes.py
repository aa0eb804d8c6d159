"""On a cluster children are found by asking all shards. The tables stay until the next release."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("history", "0018_gaps_are_asked_for")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel("ChildHome"),
                migrations.DeleteModel("ChildMoved"),
            ]
        )
    ]
