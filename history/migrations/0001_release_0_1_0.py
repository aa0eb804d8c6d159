"""The tables of release 0.1.0, which had these fourteen migrations."""

import history.models
import psqlextra.backend.migrations.operations.create_partitioned_model
import psqlextra.manager.manager
import psqlextra.models.partitioned
import psqlextra.types
from django.db import migrations, models

# The days take it from their parent.
LZ4 = """
DO $$
DECLARE
    parent text;
BEGIN
    IF NOT (SELECT 'lz4' = ANY(enumvals) FROM pg_settings
            WHERE name = 'default_toast_compression') THEN
        RETURN;
    END IF;
    FOREACH parent IN ARRAY ARRAY['product_instance_aud', 'participant_role_aud',
        'product_task_aud', 'realty_info_aud', 'product_car_aud']
    LOOP
        EXECUTE format('ALTER TABLE ONLY %I ALTER COLUMN data SET COMPRESSION lz4', parent);
    END LOOP;
END $$
"""
KINDS = [
    ('ParticipantRoleAud', 'Participant', 'participant_role_aud', True),
    ('ProductCarAud', 'Car', 'product_car_aud', True),
    ('ProductInstanceAud', 'Application', 'product_instance_aud', False),
    ('ProductTaskAud', 'Task', 'product_task_aud', True),
    ('RealtyInfoAud', 'Realty', 'realty_info_aud', True),
]


def versions(name, verbose_name, table, is_child):
    parent = [('product_instance_id', models.CharField(max_length=32))] if is_child else []
    return psqlextra.backend.migrations.operations.create_partitioned_model.PostgresCreatePartitionedModel(
        name=name,
        fields=[
            ('id', models.CharField(max_length=32)),
            ('version', models.IntegerField()),
            ('data', models.JSONField()),
            ('updated_at', models.DateTimeField()),
            ('client_id', models.CharField(max_length=64)),
            ('author', models.CharField(max_length=64, null=True)),
            ('type', models.IntegerField()),
            *parent,
            ('pk', models.CompositePrimaryKey('id', 'updated_at', 'version', blank=True, editable=False, primary_key=True, serialize=False)),
        ],
        options={'verbose_name': verbose_name, 'db_table': table},
        partitioning_options={
            'method': psqlextra.types.PostgresPartitioningMethod['RANGE'],
            'key': ['updated_at'],
        },
        bases=(psqlextra.models.partitioned.PostgresPartitionedModel,),
        managers=[('objects', psqlextra.manager.manager.PostgresManager())],
    )


def own(name, table, fields, **options):
    """A table without rights of people: processes keep it."""
    options |= {'db_table': table, 'default_permissions': ()}
    return migrations.CreateModel(name, fields, options)


class Migration(migrations.Migration):

    initial = True

    replaces = [
        ('history', '0001_initial'),
        ('history', '0002_reading'),
        ('history', '0003_upkeep'),
        ('history', '0004_late_rows'),
        ('history', '0005_archive_checks'),
        ('history', '0006_search_retention'),
        ('history', '0007_search_index'),
        ('history', '0008_verified_table'),
        ('history', '0009_masking'),
        ('history', '0010_search_key_without_application'),
        ('history', '0011_person_written_by'),
        ('history', '0012_day_share'),
        ('history', '0013_lz4'),
        ('history', '0014_gaps'),
    ]

    dependencies = [
    ]

    operations = [
        *(versions(*kind) for kind in KINDS),
        *(
            migrations.AddIndex(
                model_name=name,
                index=models.Index(models.F('product_instance_id'), models.F('updated_at'), name=table.replace('_aud', '_app')),
            )
            for name, _, table, is_child in KINDS if is_child
        ),
        migrations.RunSQL(LZ4, migrations.RunSQL.noop),
        migrations.CreateModel(
            name='Access',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ],
            options={
                'permissions': [('view_history', 'Can read histories'), ('view_sensitive', 'Can read sensitive fields'), ('unmask', 'Can unmask one value, with a reason')],
                'managed': False,
                'default_permissions': (),
            },
        ),
        own('ArchivedDay', 'archived_day', [
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('table', models.CharField(max_length=63)),
            ('day', models.DateField()),
            ('rows', models.BigIntegerField()),
            ('table_bytes', models.BigIntegerField()),
            ('file_bytes', models.BigIntegerField()),
            ('digest', models.CharField(max_length=64)),
            ('files', models.JSONField()),
            ('archived_at', models.DateTimeField()),
            ('checked_at', models.DateTimeField(null=True)),
            ('fault', models.TextField(db_default='', default='')),
        ], constraints=[
            models.UniqueConstraint(fields=('table', 'day'), name='archived_day_once'),
        ]),
        own('DaySeal', 'day_seal', [
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('table', models.CharField(max_length=63)),
            ('day', models.DateField()),
            ('rows', models.BigIntegerField()),
            ('digest', models.CharField(max_length=64)),
            ('ranges', models.JSONField()),
            ('previous', models.CharField(max_length=64)),
            ('seal', models.CharField(max_length=64, unique=True)),
            ('sealed_at', models.DateTimeField()),
        ], indexes=[
            models.Index(fields=['table', 'day'], name='day_seal_day'),
        ]),
        own('DayShare', 'day_share', [
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('table', models.CharField(max_length=63)),
            ('day', models.DateField()),
            ('total', models.BooleanField()),
            ('client_id', models.CharField(max_length=64)),
            ('sampled', models.IntegerField()),
            ('all', models.JSONField()),
            ('nothing', models.JSONField()),
            ('technical', models.JSONField()),
        ], permissions=[('view_share', 'Can see how much each service brings')], constraints=[
            models.UniqueConstraint(fields=('table', 'day', 'total', 'client_id'), name='day_share_once'),
        ]),
        migrations.CreateModel(
            name='FieldLabel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('entity', models.CharField(blank=True, help_text='Empty: every kind.', max_length=40, verbose_name='kind of entity')),
                ('path', models.CharField(help_text='/rate, /documents/*/number; * stands for any item of a list or any key.', max_length=300, verbose_name='path')),
                ('russian', models.CharField(max_length=200, verbose_name='in Russian')),
                ('english', models.CharField(blank=True, max_length=200, verbose_name='in English')),
                ('kind', models.CharField(choices=[('text', 'text'), ('money', 'money'), ('percent', 'percent'), ('date', 'date'), ('enum', 'words from a list'), ('technical', 'technical')], default='text', max_length=10, verbose_name='kind')),
                ('words', models.JSONField(blank=True, default=dict, help_text='For words from a list: {"NEW": {"ru": "Новая", "en": "New"}}.', verbose_name='words')),
                ('sensitive', models.BooleanField(db_default=False, default=False, help_text='Masked, with all below it, for everybody without the permission to read sensitive fields. In its path ** stands for any number of levels: /**/phone.', verbose_name='sensitive')),
            ],
            options={
                'verbose_name': 'field label',
                'verbose_name_plural': 'field labels',
                'ordering': ['entity', 'path'],
                'constraints': [
                    models.UniqueConstraint(fields=('entity', 'path'), name='field_label_once'),
                ],
            },
        ),
        own('GapDay', 'gap_day', [
            ('pk', models.CompositePrimaryKey('table', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
            ('table', models.CharField(max_length=63)),
            ('day', models.DateField()),
            ('mark', models.TextField()),
            ('scanned_at', models.DateTimeField()),
        ]),
        own('GapDocument', 'gap_document', [
            ('pk', models.CompositePrimaryKey('entity', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
            ('entity', models.CharField(max_length=40)),
            ('id', models.CharField(max_length=32)),
            ('versions', history.models.MultirangeField()),
            ('newest_day', models.DateField()),
            ('lowest', models.IntegerField()),
            ('judged', models.IntegerField(null=True)),
            ('begun', models.BooleanField(db_default=False)),
            ('since', models.DateTimeField(null=True)),
        ]),
        own('GapPending', 'gap_pending', [
            ('pk', models.CompositePrimaryKey('entity', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
            ('entity', models.CharField(max_length=40)),
            ('id', models.CharField(max_length=32)),
        ]),
        own('GapRun', 'gap_run', [
            ('id', models.IntegerField(primary_key=True, serialize=False)),
            ('started_at', models.DateTimeField()),
            ('seconds', models.FloatField()),
            ('days', models.IntegerField()),
            ('quarantined', models.BigIntegerField()),
            ('removed_before', models.DateField()),
        ]),
        own('IndexedPartition', 'search_indexed_partition', [
            ('name', models.CharField(max_length=63, primary_key=True, serialize=False)),
            ('file', models.BigIntegerField()),
            ('keys', models.CharField(max_length=64)),
            ('pages', models.BigIntegerField()),
        ]),
        own('LateRow', 'late_row', [
            ('id', models.BigAutoField(primary_key=True, serialize=False)),
            ('table', models.CharField(max_length=63)),
            ('day', models.DateField()),
            ('row_id', models.CharField(max_length=32)),
            ('version', models.IntegerField()),
            ('row_hash', models.BinaryField()),
            ('topic', models.CharField(max_length=249)),
            ('partition', models.IntegerField()),
            ('offset', models.BigIntegerField()),
            ('noted_at', models.DateTimeField()),
            ('sealed', models.BooleanField()),
        ], indexes=[
            models.Index(fields=['table', 'day', 'row_hash'], name='late_row_hash'),
        ]),
        own('MaintainRun', 'maintain_run', [
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('started_at', models.DateTimeField()),
            ('seconds', models.FloatField()),
            ('exit_code', models.IntegerField()),
            ('created', models.IntegerField()),
            ('dropped', models.IntegerField()),
            ('held', models.IntegerField()),
            ('busy', models.IntegerField()),
            ('broken', models.IntegerField()),
            ('search_keys_before', models.DateField(null=True)),
        ], get_latest_by='started_at'),
        migrations.CreateModel(
            name='Person',
            fields=[
                ('login', models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name='login')),
                ('full_name', models.CharField(max_length=200, verbose_name='full name')),
                ('kind', models.CharField(choices=[('person', 'person'), ('service', 'service')], default='person', max_length=10, verbose_name='kind')),
                ('written_by', models.CharField(db_default='', default='', editable=False, max_length=40)),
            ],
            options={
                'verbose_name': 'person',
                'verbose_name_plural': 'people',
                'ordering': ['full_name'],
            },
        ),
        own('SealedDay', 'sealed_day', [
            ('pk', models.CompositePrimaryKey('table', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
            ('table', models.CharField(max_length=63)),
            ('day', models.DateField()),
            ('dropped_at', models.DateTimeField(null=True)),
        ]),
        migrations.CreateModel(
            name='SearchKey',
            fields=[
                ('pk', models.CompositePrimaryKey('value', 'name', 'entity', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('value', models.CharField(max_length=100)),
                ('name', models.CharField(max_length=40)),
                ('entity', models.CharField(max_length=40)),
                ('id', models.CharField(max_length=32)),
                ('day', models.DateField()),
            ],
            options={
                'db_table': 'search_key',
            },
        ),
        own('VerifiedTable', 'verified_table', [
            ('table', models.CharField(max_length=63, primary_key=True, serialize=False)),
            ('started_at', models.DateTimeField()),
            ('days', models.IntegerField()),
            ('faults', models.IntegerField()),
        ]),
        own('VersionGap', 'version_gap', [
            ('id', models.BigAutoField(primary_key=True, serialize=False)),
            ('entity', models.CharField(max_length=40)),
            ('document', models.CharField(max_length=32)),
            ('first', models.IntegerField()),
            ('last', models.IntegerField()),
            ('beginning', models.BooleanField()),
            ('client_id', models.CharField(max_length=64)),
            ('since', models.DateTimeField()),
            ('until', models.DateTimeField()),
            ('found_at', models.DateTimeField()),
            ('closed_at', models.DateTimeField(null=True)),
            ('outcome', models.CharField(db_default='', default='', max_length=10)),
        ], indexes=[
            models.Index(condition=models.Q(('closed_at', None)), fields=['entity', 'document', 'first'], name='version_gap_open'),
            models.Index(condition=models.Q(('closed_at', None)), fields=['since'], name='version_gap_since'),
            models.Index(fields=['closed_at'], name='version_gap_closed'),
        ]),
    ]
