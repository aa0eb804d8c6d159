"""`annals breakglass`: a login for an emergency; `annals journal`: who looked at what."""
