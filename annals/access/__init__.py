"""Who may do what: roles, log-in and its limits, sessions, rights in the database."""
