"""What a message must be, for programs and for docs/: JSON Schema, AsyncAPI, reasons, examples."""
