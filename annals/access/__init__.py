"""Who may do what: roles, how people and programs log in, sessions, rights in the database."""
