"""The operations of cuDNN as a dialect: graphs, tensors, verifiers, references, MLIR."""
