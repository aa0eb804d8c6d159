"""The logins of the embedded PostgreSQL besides its superuser, and their passwords."""

from pathlib import Path
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from annals.embedded import process
from history.common import private_files

OWNER: Final = "owner_login"
WEB: Final = "web_login"
CONSUMER: Final = "consumer_login"

# The benchmarks run CHECKPOINT and end sessions, and `annals check` reads all settings of the
# server.
_CREATE_OWNER: Final[tuple[LiteralString, ...]] = (
    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {text}) THEN"
    " CREATE ROLE {login}; END IF; END $$",
    "ALTER ROLE {login} LOGIN CREATEROLE CREATEDB CONNECTION LIMIT 50 PASSWORD {password}",
    "GRANT pg_checkpoint, pg_read_all_settings, pg_signal_backend TO {login}",
    "ALTER DATABASE {database} OWNER TO {login}",
)


def get_password_file(home: Path, login: str) -> Path:
    """Return the file with the password of a login. Generates the password if it is missing."""
    file = home / f"{login}.password"
    if not file.exists():
        private_files.write_private_file(file, process.generate_password())
    return file


def create_owner(home: Path, superuser: str, database: str) -> None:
    """Create the owner of the tables, unless it exists.

    Args:
        home: The directory of the server.
        superuser: A URI of the database with the superuser's login.
        database: The name of the database.
    """
    password_path = home / f"{OWNER}.password"
    if password_path.exists():
        return
    password = process.generate_password()
    options = "-c synchronous_commit=local"  # do not wait for a standby that does not run
    with psycopg.connect(superuser, options=options) as connection:
        # Other sessions and logs see statements, so the password is encrypted here.
        stored = connection.pgconn.encrypt_password(
            password.encode(), OWNER.encode(), b"scram-sha-256"
        )
        names = {
            "text": sql.Literal(OWNER),
            "login": sql.Identifier(OWNER),
            "password": sql.Literal(stored.decode()),
            "database": sql.Identifier(database),
        }
        for statement in _CREATE_OWNER:
            connection.execute(sql.SQL(statement).format(**names))
    private_files.write_private_file(password_path, password)
