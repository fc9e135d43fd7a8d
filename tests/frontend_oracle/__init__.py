"""What cudnn-frontend infers and refuses, recorded, so that tests can compare without cuDNN."""
