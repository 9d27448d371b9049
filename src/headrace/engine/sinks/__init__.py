"""Where results go; each sink has every result once if it can tell an epoch again."""
