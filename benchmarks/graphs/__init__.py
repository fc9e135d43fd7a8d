"""Cases as operation graphs, for every library with the pygraph of cudnn-frontend."""
