"""What outlives an epoch: the checkpoint, the storage it is on, and how tasks reach its files."""
