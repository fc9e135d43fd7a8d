"""The doors through which graphs come in: `pygraph`, and files for the command line."""
