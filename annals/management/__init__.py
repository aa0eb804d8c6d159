"""What commands do that check a lot: `partitions verify`, `compare-old`."""
