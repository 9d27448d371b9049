"""A fuzzer: random queries over random typed streams, compared with Spark's batch SQL over the admitted rows."""
