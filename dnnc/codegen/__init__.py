"""Parts that kernels are made of, by what they stand on."""
