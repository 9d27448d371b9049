"""One operator per kind of node: it decides, takes rows, makes results."""
