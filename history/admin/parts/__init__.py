"""What the pages are built of: cards, rows, values, links, forms."""
