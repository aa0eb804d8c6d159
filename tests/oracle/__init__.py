"""Compares the answers of the API with a brute-force reference, over random histories.

`histories` makes random histories. `reference` and `blame` compute what every call must answer.
`values` reads and compares JSON values. `checks` compares the answers of the API with the
reference. Only `histories` and the test itself import code under test.
"""
