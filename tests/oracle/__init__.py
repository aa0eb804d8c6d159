"""A reference of the reading side, computed by brute force, against random histories.

`histories` makes them, `reference` says what every call must answer, `checks` compares. Neither
`values` nor `reference` imports anything of the code under test.
"""
