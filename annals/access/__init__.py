"""Who may do what: roles, logging in and its limits, sessions, rights in the database."""
