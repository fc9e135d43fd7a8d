"""Parts for sm_80 and later: `mma.sync` and its operands."""
