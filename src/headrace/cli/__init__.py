"""The `headrace` command."""

from headrace.cli.app import main

__all__ = ["main"]
