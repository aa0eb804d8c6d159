"""`annals breakglass`: a login for an emergency."""
