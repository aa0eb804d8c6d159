"""The database backend of Django that psqlextra extends (POSTGRES_EXTRA_DB_BACKEND_BASE)."""
