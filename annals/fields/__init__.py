"""The settings: one typed field for each, in groups. annals.env reads them.

Each group extends the one before it, because a msgspec.Struct has only one base with fields.
"""
