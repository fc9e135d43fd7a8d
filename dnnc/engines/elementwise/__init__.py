"""Work bound by memory: pointwise, transpose, reduction, resample, peers, fallback."""
