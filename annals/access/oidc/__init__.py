"""Identity providers: their keys and tokens; login for people, Bearer tokens for programs."""
