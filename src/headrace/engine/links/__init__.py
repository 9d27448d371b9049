"""Links between sites: a sink that says what it sent, and a source that reads what others did."""
