"""The consumer's loop: reads messages, decides, hands batches to the writer."""
