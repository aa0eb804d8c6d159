"""The actions of commands. They are imported only when a command runs, so help stays fast."""
