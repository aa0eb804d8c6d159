"""Where versions are read: tables on one server or several, the old service; and their SQL."""
