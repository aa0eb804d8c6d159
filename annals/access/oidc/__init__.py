"""Identity providers (OpenID Connect): login for people, Bearer tokens for programs.

`providers` reads ANNALS_OIDC_FILE, `discovery` asks a provider for its addresses and keys, `tokens`
verifies tokens. Begin reading in `login` for people and in `bearer` for programs.
"""
