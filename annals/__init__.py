"""The Django project of Annals: it connects the apps `history` and `ingest`.

Begin reading in `settings` for Django, in `management/command_line` for commands, in `server` and
`wsgi` for the web. `configuration/fields` declares all settings of an installation.
"""

__version__ = "0.2.0.dev0"
