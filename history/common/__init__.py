"""Code that all folders use: the clock, deadlines, sentences about errors, tables, HTTP calls."""
