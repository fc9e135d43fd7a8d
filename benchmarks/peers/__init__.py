"""Who is compared: dnnc, cuDNN, torch."""
