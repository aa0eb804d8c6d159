"""The application: it connects `history` and `ingest`.

Begin reading in `settings` for Django, in `command_line` for commands, in `server` and `wsgi` for
the web. `fields` has all settings of an installation, and `env` reads them.
"""

__version__ = "0.2.0.dev0"
