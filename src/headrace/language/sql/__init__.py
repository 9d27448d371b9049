"""SQL to bound queries: every expression that reaches Spark passes through here."""
