"""The parts of docs/support.md, which `docs/generate_support.py` writes."""
