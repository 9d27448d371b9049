"""How one join is spread over hosts."""
