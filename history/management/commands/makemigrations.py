"""`annals makemigrations`: makes migrations that do not add default partitions.

A default partition with rows of a day would prevent the creation of this day (docs/decisions/0003).
"""

from typing import Any

from django.db.migrations import Migration
from psqlextra.backend.migrations.operations import PostgresAddDefaultPartition
from psqlextra.management.commands import pgmakemigrations


class Command(pgmakemigrations.Command):
    def write_migration_files(self, changes: dict[str, list[Migration]], *args: Any) -> None:
        for migrations in changes.values():
            for migration in migrations:
                migration.operations = [  # type: ignore[misc] # the stubs call it a ClassVar
                    operation
                    for operation in migration.operations
                    if not isinstance(operation, PostgresAddDefaultPartition)
                ]
        super().write_migration_files(changes, *args)
