"""The web process: how it starts, and its middleware.

Begin with start.py, which annals/wsgi.py and annals/server.py call. The middleware and its order
are in middleware/.
"""
