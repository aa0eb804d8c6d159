"""The tests of the app outbox, installed in a small service of its own."""
