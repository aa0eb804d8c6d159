"""The tests of the Django app `outbox`, in a small service that has it installed."""
