"""JSON documents, read and written exactly; what JSONB cannot hold; values at a pointer."""
