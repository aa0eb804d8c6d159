"""Completion in shells: the commands as a tree, and that tree as a script of each shell."""
