"""`manage.py breakglass`: a local login for the day on which no identity provider answers."""
