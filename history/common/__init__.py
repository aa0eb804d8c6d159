"""What all folders share: the clock, deadlines, errors as sentences, tables, HTTP calls."""
