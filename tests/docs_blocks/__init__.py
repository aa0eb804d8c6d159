"""Every code block of the documentation is run, parsed or named."""
