"""When answers run: groups, periods, due windows, executions, and what they cost."""
