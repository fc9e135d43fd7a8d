"""Which tile of an output a block works on, and where it lies."""
