"""The database backend of Django, prepared statements, and the rights of logins."""
