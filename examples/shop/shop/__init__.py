"""The Django project of the example shop: settings, URLs and the WSGI application."""
