from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('history', '0007_search_index'),
    ]

    operations = [
        migrations.CreateModel(
            name='VerifiedTable',
            fields=[
                ('table', models.CharField(max_length=63, primary_key=True, serialize=False)),
                ('started_at', models.DateTimeField()),
                ('days', models.IntegerField()),
                ('faults', models.IntegerField()),
            ],
            options={
                'db_table': 'verified_table',
                'default_permissions': (),
            },
        ),
    ]
