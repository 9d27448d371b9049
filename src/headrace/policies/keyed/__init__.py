"""Which mini-partitions move, wait, are on disk or shared (Flux)."""
