"""Fills the column `field` in the rows of earlier releases that are still open."""

from django.db import migrations

# In earlier releases, the sentence about a wrong field began with the name of the field.
FILL_FIELDS = """
UPDATE ingest_quarantine SET field = substring(detail from '^`([^`]{1,200})`')
WHERE status IN ('new', 'retrying', 'failed') AND field = '' AND detail ~ '^`[^`]{1,200}`'
"""


class Migration(migrations.Migration):
    dependencies = [("ingest", "0013_explanations")]
    operations = [migrations.RunSQL(FILL_FIELDS, migrations.RunSQL.noop)]
