"""Where rows come from, how many an epoch takes, and what becomes of rows that are refused."""
