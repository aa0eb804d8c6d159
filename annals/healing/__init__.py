"""Asks for versions that never arrived: of whom, for which, and what came of it."""
