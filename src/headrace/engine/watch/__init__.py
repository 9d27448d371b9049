"""What people see of a run: hooks, status, metrics."""
