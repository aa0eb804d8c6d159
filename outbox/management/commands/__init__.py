"""`manage.py outbox`."""
