#!/usr/bin/env python
"""Annals' command line."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    from annals.quick_help import print_help

    print_help(sys.argv[1:])
    from annals.start import prepare

    prepare(sys.argv[1:])
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
