"""Tests every code block and command of the documentation.

A block is run, or parsed, or listed in `named` with the test that runs it.
"""
