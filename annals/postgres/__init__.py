"""Django's backend for PostgreSQL, with another check of what its pool gives."""
