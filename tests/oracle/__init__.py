"""Compares the answers of the API with a brute-force reference, over random histories.

`histories` makes them, `reference` says what every call must answer, `checks` compares. Neither
`values` nor `reference` imports anything of the code under test.
"""
