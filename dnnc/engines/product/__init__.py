"""Matrix products: engines matmul_sm80 and matmul_sm90, and what convolutions share with them."""
