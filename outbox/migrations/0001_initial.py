"""Creates the tables of the outbox by SQL, which makes the partitions and partial indexes too."""

from django.db import migrations, models

BUCKETS = 64
SLOTS = 32

CREATE = """
CREATE TABLE outbox_relay (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat bigint NOT NULL DEFAULT 0,
    in_hand jsonb NOT NULL DEFAULT '[]',
    last_error text NOT NULL DEFAULT ''
);
CREATE TABLE outbox_bucket (
    number smallint PRIMARY KEY,
    owner bigint REFERENCES outbox_relay ON DELETE SET NULL
);
CREATE TABLE outbox_document (
    key text PRIMARY KEY,
    bucket smallint NOT NULL,
    version integer NOT NULL,
    sent integer NOT NULL,
    type smallint NOT NULL,
    digest bytea NOT NULL,
    recorded_at timestamptz NOT NULL,
    waiting_since timestamptz,
    attempts integer NOT NULL,
    next_attempt_at timestamptz,
    last_error text NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX outbox_document_new ON outbox_document (bucket, waiting_since)
    WHERE waiting_since IS NOT NULL AND attempts = 0;
CREATE INDEX outbox_document_failed ON outbox_document (bucket, next_attempt_at)
    WHERE attempts > 0;
CREATE TABLE outbox_message (
    document text NOT NULL,
    version integer NOT NULL,
    type smallint NOT NULL,
    recorded_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    client_id text NOT NULL,
    author text,
    parent text,
    data text NOT NULL,
    slot smallint NOT NULL,
    PRIMARY KEY (document, version, slot)
) PARTITION BY LIST (slot);
CREATE TABLE outbox_tally (
    what text PRIMARY KEY,
    times bigint NOT NULL
);
"""

# A row that fits into a page is not compressed, because it is read only once, soon after it was
# written.
PARTITIONS = "".join(
    f"CREATE TABLE outbox_message_{slot:02} PARTITION OF outbox_message FOR VALUES IN ({slot})"
    " WITH (toast_tuple_target = 8160);\n"
    for slot in range(SLOTS)
)
FILL = f"INSERT INTO outbox_bucket (number) SELECT generate_series(0, {BUCKETS - 1});"
DROP = (
    "DROP TABLE outbox_tally, outbox_message, outbox_document, outbox_bucket, outbox_relay CASCADE;"
)


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.RunSQL(
            CREATE + PARTITIONS + FILL,
            DROP,
            state_operations=[
                migrations.CreateModel(
                    name="Document",
                    fields=[
                        ("key", models.TextField("document", primary_key=True, serialize=False)),
                        ("bucket", models.SmallIntegerField("bucket")),
                        ("version", models.IntegerField("newest version")),
                        ("sent", models.IntegerField("sent up to")),
                        ("type", models.SmallIntegerField("type")),
                        ("digest", models.BinaryField()),
                        ("recorded_at", models.DateTimeField("recorded at")),
                        ("waiting_since", models.DateTimeField("waiting since", null=True)),
                        ("attempts", models.IntegerField("failed attempts")),
                        ("next_attempt_at", models.DateTimeField("next attempt", null=True)),
                        ("last_error", models.TextField("last error")),
                    ],
                    options={
                        "verbose_name": "document",
                        "verbose_name_plural": "documents",
                        "db_table": "outbox_document",
                    },
                ),
                migrations.CreateModel(
                    name="Message",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "document", "version", "slot", serialize=False
                            ),
                        ),
                        ("document", models.TextField()),
                        ("version", models.IntegerField()),
                        ("type", models.SmallIntegerField()),
                        ("recorded_at", models.DateTimeField()),
                        ("updated_at", models.DateTimeField()),
                        ("client_id", models.TextField()),
                        ("author", models.TextField(null=True)),
                        ("parent", models.TextField(null=True)),
                        ("data", models.TextField()),
                        ("slot", models.SmallIntegerField()),
                    ],
                    options={"db_table": "outbox_message"},
                ),
            ],
        ),
    ]
