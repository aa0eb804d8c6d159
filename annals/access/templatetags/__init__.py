"""The template tags of the Django app `access`."""
