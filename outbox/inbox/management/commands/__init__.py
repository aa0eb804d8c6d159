"""`manage.py inbox`."""
