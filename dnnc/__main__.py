"""`python -m dnnc`: the command line."""

from .cli import main

main()
