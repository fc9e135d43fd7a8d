"""ResNet-50's forward pass as a bundle of plans: `python -m examples.resnet50 --help`.

`network` says what it is, `graphs` makes a graph of each operation, `building` compiles them,
`arena` places what layers pass on, `forward` launches them.
"""
