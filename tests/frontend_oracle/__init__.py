"""Records of what cudnn-frontend infers and refuses: tests compare with it without cuDNN."""
