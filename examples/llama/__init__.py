"""A decoder layer of a Llama as a bundle of plans: `python -m examples.llama --help`.

`phases` says what its steps are, `graphs` makes a graph of each, `building` compiles them,
`device` and `interpreted` run them, `reference` says in float64 what they should give.
"""
