"""What operators see: probes, metrics, the request log, the format of log lines."""
