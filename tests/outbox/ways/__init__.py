"""Models of every shape, for the ways in which Django can write."""
