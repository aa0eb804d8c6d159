"""The access journal: who looked at what, when and from where; a row with each answer."""
