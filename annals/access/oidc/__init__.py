"""Identity providers: their keys and tokens; login for people, Bearer tokens for programs.

providers reads ANNALS_OIDC_FILE; discovery asks each provider for its addresses and keys;
tokens checks a JWT against them; bearer and login are the two users of that.
"""
