"""The example shop, and the guide that connects a service to Annals."""
