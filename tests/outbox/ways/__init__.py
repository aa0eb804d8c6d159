"""A Django app with models of every kind, to test each way in which Django can write rows."""
