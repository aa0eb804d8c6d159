"""The web process: how it starts, its server, and the middleware that is only about HTTP.

Begin with wsgi.py. The order of the middleware is `MIDDLEWARE` in annals/settings.py.
"""
