"""Creates the tables of release 0.1.0. Replaces its eight migrations."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    replaces = [
        ('ingest', '0001_initial'),
        ('ingest', '0002_acknowledged_losses'),
        ('ingest', '0003_quarantine_retention'),
        ('ingest', '0004_known_ends'),
        ('ingest', '0005_last_message'),
        ('ingest', '0006_fates'),
        ('ingest', '0007_names_in_quarantine'),
        ('ingest', '0008_losses'),
    ]

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Gap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('topic', models.CharField(max_length=249)),
                ('topic_id', models.CharField(max_length=64)),
                ('partition', models.IntegerField()),
                ('start_offset', models.BigIntegerField()),
                ('end_offset', models.BigIntegerField()),
                ('lost', models.BooleanField()),
                ('noticed_at', models.DateTimeField()),
                ('why', models.CharField(blank=True, db_default='', max_length=200)),
            ],
            options={
                'verbose_name': 'offset gap',
                'verbose_name_plural': 'offset gaps',
                'db_table': 'ingest_gap',
            },
        ),
        migrations.CreateModel(
            name='Ledger',
            fields=[
                ('pk', models.CompositePrimaryKey('topic', 'topic_id', 'partition', blank=True, editable=False, primary_key=True, serialize=False)),
                ('topic', models.CharField(max_length=249)),
                ('topic_id', models.CharField(max_length=64)),
                ('partition', models.IntegerField()),
                ('first_offset', models.BigIntegerField()),
                ('next_offset', models.BigIntegerField()),
                ('high_watermark', models.BigIntegerField(null=True)),
                ('end_known_at', models.DateTimeField(null=True)),
                ('read', models.BigIntegerField(default=0)),
                ('stored', models.BigIntegerField(default=0)),
                ('repeated', models.BigIntegerField(default=0)),
                ('expired', models.BigIntegerField(default=0)),
                ('quarantined', models.BigIntegerField(default=0)),
                ('quarantine_removed', models.BigIntegerField(db_default=0)),
                ('skipped', models.BigIntegerField(default=0)),
                ('lost', models.BigIntegerField(default=0)),
                ('lost_acknowledged', models.BigIntegerField(db_default=0)),
                ('epoch', models.BigIntegerField(default=0)),
                ('newest_timestamp', models.DateTimeField(null=True)),
                ('last_offset', models.BigIntegerField(null=True)),
                ('last_leader_epoch', models.IntegerField(null=True)),
                ('last_digest', models.BinaryField(null=True)),
                ('halted_at', models.DateTimeField(null=True)),
                ('halted_why', models.CharField(blank=True, default='', max_length=200)),
                ('resume_until', models.BigIntegerField(null=True)),
                ('noted_from', models.BigIntegerField(db_default=0)),
                ('updated_at', models.DateTimeField()),
                ('checked_at', models.DateTimeField()),
                ('forecast_at', models.DateTimeField(null=True)),
                ('loss_at', models.DateTimeField(null=True)),
                ('kept_seconds', models.FloatField(null=True)),
                ('arriving_rate', models.FloatField(null=True)),
                ('reading_rate', models.FloatField(null=True)),
            ],
            options={
                'verbose_name': 'ledger row',
                'verbose_name_plural': 'ledger',
                'db_table': 'ingest_ledger',
                'permissions': [('view_completeness', 'Can view the completeness of the store')],
            },
        ),
        migrations.CreateModel(
            name='RetiredTopic',
            fields=[
                ('topic', models.CharField(max_length=249, primary_key=True, serialize=False)),
                ('why', models.CharField(max_length=200)),
                ('retired_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'ingest_retired_topic',
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Quarantined',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('topic', models.CharField(max_length=249, verbose_name='topic')),
                ('topic_id', models.CharField(max_length=64)),
                ('partition', models.IntegerField(verbose_name='partition')),
                ('offset', models.BigIntegerField(verbose_name='offset')),
                ('timestamp', models.DateTimeField(null=True, verbose_name='time of the message')),
                ('day', models.DateField(null=True)),
                ('entity', models.CharField(db_default='', default='', max_length=40)),
                ('entity_id', models.CharField(db_default='', default='', max_length=32)),
                ('version', models.IntegerField(null=True)),
                ('key', models.BinaryField(null=True)),
                ('value', models.BinaryField(null=True)),
                ('headers', models.JSONField(default=list)),
                ('reason', models.CharField(max_length=40, verbose_name='reason')),
                ('detail', models.TextField(verbose_name='detail')),
                ('status', models.CharField(choices=[('new', 'new'), ('retrying', 'retrying'), ('failed', 'failed'), ('resolved', 'resolved'), ('discarded', 'discarded')], default='new', max_length=10, verbose_name='status')),
                ('attempts', models.IntegerField(default=0, verbose_name='attempts')),
                ('first_seen', models.DateTimeField(verbose_name='first seen')),
                ('next_attempt', models.DateTimeField(null=True, verbose_name='next attempt')),
                ('settled_at', models.DateTimeField(null=True, verbose_name='settled at')),
                ('outcome', models.CharField(blank=True, default='', max_length=200, verbose_name='outcome')),
            ],
            options={
                'verbose_name': 'quarantined message',
                'verbose_name_plural': 'quarantine',
                'db_table': 'ingest_quarantine',
                'indexes': [models.Index(fields=['status', 'reason'], name='ingest_quarantine_status'), models.Index(fields=['first_seen'], name='ingest_quarantine_seen'), models.Index(fields=['day'], name='ingest_quarantine_day'), models.Index(condition=models.Q(('entity_id', ''), _negated=True), fields=['entity', 'entity_id', 'version'], name='ingest_quarantine_version'), models.Index(condition=models.Q(('status', 'resolved'), _negated=True), fields=['topic', 'topic_id', 'partition', 'offset'], name='ingest_quarantine_counted')],
                'constraints': [models.UniqueConstraint(fields=('topic', 'topic_id', 'partition', 'offset'), name='ingest_quarantine_place')],
            },
        ),
        migrations.CreateModel(
            name='Unstored',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('topic', models.CharField(max_length=249)),
                ('topic_id', models.CharField(max_length=64)),
                ('partition', models.IntegerField()),
                ('start_offset', models.BigIntegerField()),
                ('end_offset', models.BigIntegerField()),
                ('repeated', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ('expired', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ('skipped', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ('noted_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'ingest_unstored',
                'default_permissions': (),
                'indexes': [models.Index(fields=['topic', 'partition', 'topic_id', 'end_offset'], name='ingest_unstored_place'), models.Index(fields=['noted_at'], name='ingest_unstored_noted')],
            },
        ),
    ]
