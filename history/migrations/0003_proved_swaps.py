"""What proves that packing loses and doubles nothing.

The two trigger functions run with the rights of the owner of the tables: a consumer may neither
write to changed_row nor read a single partition. Packed days of earlier releases get the trigger
that refuses what their blocks have.
"""

from django.db import migrations, models

# A row that comes while a new table of its day is built is noted with its key. Any other change
# cannot be repeated in the new table: it is only noted that there was one.
NOTE_CHANGE = """
CREATE OR REPLACE FUNCTION annals_note_change() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    change text := lower(TG_OP);
BEGIN
    IF TG_LEVEL = 'STATEMENT' THEN
        INSERT INTO public.changed_row (partition, change) VALUES (TG_RELID, change);
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.packed IS NOT NULL THEN
            change := 'block';
        END IF;
        INSERT INTO public.changed_row (partition, change, row_id, version, updated_at)
            VALUES (TG_RELID, change, NEW.id, NEW.version, NEW.updated_at);
    ELSE
        INSERT INTO public.changed_row (partition, change, row_id, version, updated_at)
            VALUES (TG_RELID, change, OLD.id, OLD.version, OLD.updated_at);
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION annals_note_change() FROM PUBLIC
"""

# The primary key knows of a block only its newest version. The others are in `keys`: eight bytes
# for each, of which the first five are the microseconds until the newest.
REFUSE_PACKED = """
CREATE OR REPLACE FUNCTION annals_refuse_packed() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_packed boolean;
BEGIN
    EXECUTE format($query$
        SELECT EXISTS (
            SELECT FROM %s AS block
            CROSS JOIN LATERAL generate_series(1, octet_length(keys) / 8) AS place
            WHERE id = $1 AND updated_at >= $3 AND packed IS NOT NULL
                AND coalesce(versions[place], version - octet_length(keys) / 8 - 1 + place) = $2
                AND updated_at - ('x' || encode(substr(keys, 8 * place - 7, 5), 'hex'))
                    ::bit(40)::bigint * interval '1 microsecond' = $3)
    $query$, TG_RELID::regclass) INTO is_packed USING NEW.id, NEW.version, NEW.updated_at;
    IF is_packed THEN
        RAISE unique_violation USING
            MESSAGE = format('duplicate key value violates unique constraint "%s"',
                TG_TABLE_NAME || '_pkey'),
            DETAIL = 'A block of this day has the version already.',
            SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_TABLE_NAME || '_pkey';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION annals_refuse_packed() FROM PUBLIC
"""

GUARD_PACKED_DAYS = """
DO $$
DECLARE
    day_table regclass;
    is_distributed boolean := false;
BEGIN
    FOR day_table IN
        SELECT to_regclass(format('%I', "table" || to_char(day, '_YYYYMMDD'))) FROM sealed_day
        WHERE packed_at IS NOT NULL
    LOOP
        CONTINUE WHEN day_table IS NULL;
        -- Citus has no triggers.
        IF to_regclass('pg_dist_partition') IS NOT NULL THEN
            EXECUTE 'SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = $1)'
                INTO is_distributed USING day_table;
        END IF;
        CONTINUE WHEN is_distributed;
        EXECUTE format('CREATE OR REPLACE TRIGGER annals_refuse_packed'
            ' BEFORE INSERT OR UPDATE OF id, version, updated_at ON %s'
            ' FOR EACH ROW EXECUTE FUNCTION annals_refuse_packed()', day_table);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER annals_refuse_packed', day_table);
    END LOOP;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("history", "0002_gaps_asked_for_packed_days")]
    operations = [
        migrations.CreateModel(
            name="ChangedRow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("partition", models.BigIntegerField()),
                ("change", models.CharField(max_length=10)),
                ("row_id", models.TextField(null=True)),
                ("version", models.IntegerField(null=True)),
                ("updated_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "changed_row",
                "default_permissions": (),
                "indexes": [models.Index(fields=["partition"], name="changed_row_partition")],
            },
        ),
        migrations.CreateModel(
            name="PackAttempt",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "table",
                        "day",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("table", models.CharField(max_length=63)),
                ("day", models.DateField()),
                ("began_at", models.DateTimeField()),
            ],
            options={"db_table": "pack_attempt", "default_permissions": ()},
        ),
        migrations.CreateModel(
            name="DoubledVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("table", models.CharField(max_length=63)),
                ("day", models.DateField()),
                ("row_id", models.TextField()),
                ("version", models.IntegerField()),
                ("updated_at", models.DateTimeField()),
                ("client_id", models.TextField()),
                ("author", models.TextField(null=True)),
                ("type", models.IntegerField()),
                ("product_instance_id", models.TextField(null=True)),
                ("data", models.TextField()),
                ("taken_at", models.DateTimeField()),
            ],
            options={
                "db_table": "doubled_version",
                "default_permissions": (),
                "indexes": [models.Index(fields=["table", "day"], name="doubled_version_day")],
            },
        ),
        migrations.RunSQL(NOTE_CHANGE, "DROP FUNCTION annals_note_change()"),
        migrations.RunSQL(REFUSE_PACKED, "DROP FUNCTION annals_refuse_packed() CASCADE"),
        migrations.RunSQL(GUARD_PACKED_DAYS, migrations.RunSQL.noop),
    ]
