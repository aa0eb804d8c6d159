"""The tables of versions, and all code that reads them: sources, timelines, API and screens."""
