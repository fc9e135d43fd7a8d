"""The parts of an attention: masks, scores, weights, the online softmax."""
