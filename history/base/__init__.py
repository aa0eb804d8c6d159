"""What the folders of Annals share: clock, errors as text, tables of commands, calls by HTTP."""
