"""The logins of the embedded PostgreSQL below its superuser: the owner of the tables."""

from pathlib import Path
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from annals.embedded import process

OWNER: Final = "owner_login"
WEB: Final = "web_login"
CONSUMER: Final = "consumer_login"

# The rights are for the benchmarks, the settings for `annals check`.
_CREATE: Final[tuple[LiteralString, ...]] = (
    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {text}) THEN"
    " CREATE ROLE {login}; END IF; END $$",
    "ALTER ROLE {login} LOGIN CREATEROLE CREATEDB CONNECTION LIMIT 50 PASSWORD {password}",
    "GRANT pg_checkpoint, pg_read_all_settings, pg_signal_backend TO {login}",
    "ALTER DATABASE {database} OWNER TO {login}",
)


def password_file(home: Path, login: str) -> Path:
    """The file with the password of a login, which is generated if there is none."""
    file = home / f"{login}.password"
    return file if file.exists() else process.write(file, process.new_password())


def create_owner(home: Path, superuser: str, database: str) -> None:
    """Create the owner of the tables, once. superuser: a URI of this database."""
    done = home / f"{OWNER}.password"
    if done.exists():
        return
    password = process.new_password()
    options = "-c synchronous_commit=local"  # do not wait for a standby that does not run
    with psycopg.connect(superuser, options=options) as connection:
        # What other sessions and logs see of a statement must not have it.
        stored = connection.pgconn.encrypt_password(
            password.encode(), OWNER.encode(), b"scram-sha-256"
        )
        names = {
            "text": sql.Literal(OWNER),
            "login": sql.Identifier(OWNER),
            "password": sql.Literal(stored.decode()),
            "database": sql.Identifier(database),
        }
        for statement in _CREATE:
            connection.execute(sql.SQL(statement).format(**names))
    process.write(done, password)
