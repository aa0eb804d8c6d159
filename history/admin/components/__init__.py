"""The building blocks of the support screens: cards, rows, values, links and forms."""
