"""How much disk the history takes, now and later."""
