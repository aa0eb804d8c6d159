"""A clerk's day: what was opened last, the days of a history, files, words of people."""
