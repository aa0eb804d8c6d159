"""The access journal: who looked at what, when, from where and why.

Each answer with data of applications has an entry, which is written before the answer is sent.
Begin reading in `write`, which annals.web.middleware.journal calls for each request. `actions`
lists all actions and outcomes, `entry` makes the entries, `read` and `screen` show them.
"""

from typing import Final

NAME: Final = "journal"  # the name of the journal's table in commands
