"""Runs the command `annals`.

Start it with `python -m annals`, or from any folder with `python PATH/annals/__main__.py`.
"""

import sys
from pathlib import Path

if not __package__:  # run as a file: Python looks for modules in this folder, and not above it
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from annals.management.command_line import main

if __name__ == "__main__":
    main()
