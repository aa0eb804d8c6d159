"""The pages of the support screens, one module each."""
