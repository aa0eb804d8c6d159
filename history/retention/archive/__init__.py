"""Days that left the database, as Parquet files: written, checked, read, brought back."""
