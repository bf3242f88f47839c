"""One file a verb of the command line; cli.py puts them together."""
