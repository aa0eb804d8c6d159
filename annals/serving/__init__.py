"""How the web serves: connections, deadlines, clients that leave. Slow clients cost no thread."""
