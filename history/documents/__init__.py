"""JSON documents: reads and writes them exactly, stores them as JSONB, finds values in them."""
