"""The web process: how it starts, and the middleware that is only about HTTP.

Begin with start.py, which annals/wsgi.py and annals/server.py call. The middleware and its order
are in middleware/.
"""
