"""The journal names the identity behind a login, the field and the version that were unmasked, and
takes no other words than those that its readers know."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("access", "0004_no_superuser_from_a_provider")]
    operations = [
        *(
            migrations.AddField(
                model_name="journalentry", name=name, field=field, preserve_default=False
            )
            for name, field in (
                ("identity", models.CharField(max_length=300, default="")),
                ("path", models.TextField(default="")),
                ("moment", models.CharField(max_length=40, default="")),
            )
        ),
        # A web of the release before does not name them. It must not fail until 0006 either, which
        # is for databases that had this migration without the defaults.
        migrations.RunSQL(
            "ALTER TABLE access_journal ALTER COLUMN identity SET DEFAULT '',"
            " ALTER COLUMN path SET DEFAULT '', ALTER COLUMN moment SET DEFAULT ''",
            migrations.RunSQL.noop,
        ),
        migrations.AddConstraint(
            model_name="journalentry",
            constraint=models.CheckConstraint(
                name="access_journal_words",
                condition=models.Q(
                    actor__in=["person", "service", "break-glass", "operator", "nobody"],
                    action__in=[
                        *("timeline", "application", "version", "compare", "moment", "field"),
                        *("blame", "search", "quarantine", "unmask", "export", "journal"),
                        *("break-glass login", "other"),
                    ],
                    outcome__in=["shown", "refused", "failed"],
                ),
            ),
        ),
    ]
