#!/usr/bin/env python
"""The command `annals` in a clone, under the name that Django's projects have."""

from annals.management.command_line import main

if __name__ == "__main__":
    main()
