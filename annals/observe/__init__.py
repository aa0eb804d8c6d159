"""What monitoring reads: probes, metrics, the request log, and the format of log lines."""
