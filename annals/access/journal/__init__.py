"""The access journal: who looked at what, when, from where and why.

Each answer with data of applications has an entry, which is written before the answer is sent.
Begin reading in `write`, whose middleware surrounds each request. `words` has the closed sets of
actions and outcomes, `entry` makes the entries, `read` and `screen` show them.
"""

from typing import Final

NAME: Final = "journal"  # what commands call its table
