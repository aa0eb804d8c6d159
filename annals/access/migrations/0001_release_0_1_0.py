"""The tables of release 0.1.0, which had these five migrations."""

import django.contrib.postgres.functions
import django.db.models.deletion
import django.db.models.functions.datetime
import psqlextra.backend.migrations.operations.create_partitioned_model
import psqlextra.manager.manager
import psqlextra.models.partitioned
import psqlextra.types
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    replaces = [
        ('access', '0001_initial'),
        ('access', '0002_access_journal'),
        ('access', '0003_what_was_opened'),
        ('access', '0004_no_superuser_from_a_provider'),
        ('access', '0005_who_in_particular'),
    ]

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Attempts',
            fields=[
                ('key', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('failures', models.IntegerField()),
                ('last', models.DateTimeField(db_index=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='BreakGlass',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to=settings.AUTH_USER_MODEL)),
                ('made', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Identity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('issuer', models.CharField(max_length=1000)),
                ('subject', models.CharField(max_length=255)),
                ('login', models.CharField(max_length=150)),
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='identity', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        psqlextra.backend.migrations.operations.create_partitioned_model.PostgresCreatePartitionedModel(
            name='JournalEntry',
            fields=[
                ('pk', models.CompositePrimaryKey('at', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('id', models.UUIDField(db_default=django.contrib.postgres.functions.RandomUUID())),
                ('login', models.CharField(max_length=150)),
                ('identity', models.CharField(max_length=300)),
                ('actor', models.CharField(max_length=20)),
                ('address', models.CharField(max_length=45)),
                ('request_id', models.CharField(max_length=64)),
                ('action', models.CharField(max_length=20)),
                ('entity', models.CharField(max_length=40)),
                ('entity_id', models.CharField(max_length=200)),
                ('application', models.CharField(max_length=200)),
                ('outcome', models.CharField(max_length=10)),
                ('status', models.IntegerField()),
                ('method', models.CharField(max_length=10)),
                ('query', models.CharField(max_length=1000)),
                ('path', models.TextField()),
                ('moment', models.CharField(max_length=40)),
                ('reason', models.CharField(max_length=500)),
            ],
            options={
                'db_table': 'access_journal',
                'permissions': [('view_journal', 'Can read the access journal')],
                'default_permissions': (),
            },
            partitioning_options={
                'method': psqlextra.types.PostgresPartitioningMethod['RANGE'],
                'key': ['at'],
            },
            bases=(psqlextra.models.partitioned.PostgresPartitionedModel,),
            managers=[
                ('objects', psqlextra.manager.manager.PostgresManager()),
            ],
        ),
        migrations.CreateModel(
            name='LogoutToken',
            fields=[
                ('digest', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('until', models.DateTimeField(db_index=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Opened',
            fields=[
                ('pk', models.CompositePrimaryKey('caller', 'at', 'application', blank=True, editable=False, primary_key=True, serialize=False)),
                ('caller', models.CharField(max_length=32)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('application', models.CharField(max_length=32)),
            ],
            options={
                'db_table': 'access_opened',
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='ProviderSession',
            fields=[
                ('session_key', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('provider_session', models.CharField(blank=True, max_length=255)),
                ('began', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.AddIndex(
            model_name='journalentry',
            index=models.Index(models.F('login'), models.F('at'), name='access_journal_login'),
        ),
        migrations.AddIndex(
            model_name='journalentry',
            index=models.Index(models.F('entity_id'), models.F('at'), condition=models.Q(('entity_id', ''), _negated=True), name='access_journal_entity'),
        ),
        migrations.AddIndex(
            model_name='journalentry',
            index=models.Index(models.F('application'), models.F('at'), condition=models.Q(('application', ''), _negated=True), name='access_journal_application'),
        ),
        migrations.AddConstraint(
            model_name='journalentry',
            constraint=models.CheckConstraint(condition=models.Q(('action__in', ['timeline', 'application', 'version', 'compare', 'moment', 'field', 'blame', 'search', 'quarantine', 'unmask', 'export', 'journal', 'break-glass login', 'other']), ('actor__in', ['person', 'service', 'break-glass', 'operator', 'nobody']), ('outcome__in', ['shown', 'refused', 'failed'])), name='access_journal_words'),
        ),
        migrations.AddField(
            model_name='providersession',
            name='identity',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='access.identity'),
        ),
        migrations.AddConstraint(
            model_name='identity',
            constraint=models.UniqueConstraint(fields=('issuer', 'subject'), name='identity_once'),
        ),
    ]
