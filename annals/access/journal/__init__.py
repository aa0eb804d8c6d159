"""The access journal: who looked at what, when and from where; a row with each answer."""

from typing import Final

NAME: Final = "journal"  # what commands call its table
