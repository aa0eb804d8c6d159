"""The building blocks of the pages: cards, rows, values, links and forms."""
