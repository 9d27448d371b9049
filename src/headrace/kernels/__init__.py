"""What runs inside Spark's tasks; it needs numpy, pyarrow, polars and the model, and nothing else."""
