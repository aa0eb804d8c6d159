"""What the rooms of Annals share: the clock, errors as text, tables of commands, calls by HTTP."""
