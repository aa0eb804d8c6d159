from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('history', '0010_search_key_without_application'),
    ]

    operations = [
        migrations.AddField(
            model_name='person',
            name='written_by',
            field=models.CharField(db_default='', default='', editable=False, max_length=40),
        ),
    ]
