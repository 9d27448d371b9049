"""Pipeline files to model, with every problem and its line."""
