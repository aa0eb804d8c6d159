"""What all folders share: the clock, deadlines, sentences about errors, tables, HTTP calls."""
