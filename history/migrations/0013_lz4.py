from django.db import migrations

# A parent's column says it for all days that are made like it. Days of today and before stay as
# they are: a document is read whatever it was compressed with, and nothing is written again.
LZ4 = """
DO $$
DECLARE
    parent text;
    day regclass;
BEGIN
    IF NOT (SELECT 'lz4' = ANY(enumvals) FROM pg_settings
            WHERE name = 'default_toast_compression') THEN
        RETURN;
    END IF;
    FOREACH parent IN ARRAY ARRAY['product_instance_aud', 'participant_role_aud',
        'product_task_aud', 'realty_info_aud', 'product_car_aud']
    LOOP
        EXECUTE format('ALTER TABLE ONLY %I ALTER COLUMN data SET COMPRESSION lz4', parent);
        FOR day IN
            SELECT inhrelid::regclass FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = parent::regclass AND relname ~ '_[0-9]{8}$'
                AND right(relname, 8) > to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')
            ORDER BY relname
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN data SET COMPRESSION lz4', day);
        END LOOP;
    END LOOP;
END $$
"""


class Migration(migrations.Migration):

    dependencies = [
        ('history', '0012_day_share'),
    ]

    operations = [
        migrations.RunSQL(LZ4, migrations.RunSQL.noop),
    ]
