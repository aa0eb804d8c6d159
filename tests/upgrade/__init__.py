"""An upgrade from an earlier release under load: `python -m tests.upgrade`."""
