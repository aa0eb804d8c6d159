"""`manage.py breakglass`: a login for an emergency; `manage.py journal`: who looked at what."""
