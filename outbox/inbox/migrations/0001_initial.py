"""Creates the tables of the inbox by SQL, which makes the partitions and partial indexes too."""

from django.db import migrations, models

SLOTS = 32
STATES = [
    ("new", "New"),
    ("processing", "Processing"),
    ("failed", "Failed"),
    ("dead", "Dead letter"),
]

CREATE = """
CREATE TABLE inbox_message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handler text NOT NULL,
    identity text NOT NULL,
    chain text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    key bytea,
    value bytea,
    headers jsonb NOT NULL DEFAULT '[]',
    sent_at timestamptz,
    received_at timestamptz NOT NULL,
    state text NOT NULL,
    holds boolean NOT NULL DEFAULT true,
    attempts integer NOT NULL DEFAULT 0,
    due_at timestamptz,
    last_error text NOT NULL DEFAULT '',
    UNIQUE (handler, identity)
);
CREATE INDEX inbox_message_chain ON inbox_message (handler, chain, id) WHERE holds;
CREATE INDEX inbox_message_due ON inbox_message (due_at, id) WHERE due_at IS NOT NULL;
CREATE TABLE inbox_done (
    handler text NOT NULL,
    identity text NOT NULL,
    done_at timestamptz NOT NULL,
    slot smallint NOT NULL,
    PRIMARY KEY (handler, identity, slot)
) PARTITION BY LIST (slot);
CREATE TABLE inbox_tally (
    handler text,
    what text,
    times bigint NOT NULL,
    PRIMARY KEY (handler, what)
);
"""
PARTITIONS = "".join(
    f"CREATE TABLE inbox_done_{slot:02} PARTITION OF inbox_done FOR VALUES IN ({slot});\n"
    for slot in range(SLOTS)
)
DROP = "DROP TABLE inbox_tally, inbox_done, inbox_message;"


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.RunSQL(
            CREATE + PARTITIONS,
            DROP,
            state_operations=[
                migrations.CreateModel(
                    name="Waiting",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("handler", models.TextField(verbose_name="handler")),
                        ("identity", models.TextField(verbose_name="identity")),
                        ("chain", models.TextField(verbose_name="key")),
                        ("topic", models.TextField(verbose_name="topic")),
                        ("partition", models.IntegerField(verbose_name="partition")),
                        ("offset", models.BigIntegerField(verbose_name="offset")),
                        ("key", models.BinaryField(null=True)),
                        ("value", models.BinaryField(null=True)),
                        ("headers", models.JSONField(default=list)),
                        ("sent_at", models.DateTimeField(null=True, verbose_name="sent at")),
                        ("received_at", models.DateTimeField(verbose_name="received at")),
                        ("state", models.TextField(choices=STATES, verbose_name="state")),
                        ("holds", models.BooleanField(default=True)),
                        ("attempts", models.IntegerField(default=0, verbose_name="attempts")),
                        ("due_at", models.DateTimeField(null=True, verbose_name="next attempt")),
                        ("last_error", models.TextField(default="", verbose_name="last error")),
                    ],
                    options={
                        "verbose_name": "message",
                        "verbose_name_plural": "messages", "db_table": "inbox_message",
                    },
                ),
                migrations.CreateModel(
                    name="Done",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "handler", "identity", "slot", serialize=False
                            ),
                        ),
                        ("handler", models.TextField()),
                        ("identity", models.TextField()),
                        ("done_at", models.DateTimeField()),
                        ("slot", models.SmallIntegerField()),
                    ],
                    options={"db_table": "inbox_done"},
                ),
            ],
        ),
    ]
