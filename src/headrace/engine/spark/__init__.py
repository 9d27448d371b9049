"""What is said to Spark itself: sessions, jobs, executors, and what only Spark can judge."""
