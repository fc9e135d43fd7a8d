"""`python -m dnnc.cli`."""

from . import main

main()
