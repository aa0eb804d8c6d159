"""The fallback: reads versions that only the old service has, while Annals replaces it."""
