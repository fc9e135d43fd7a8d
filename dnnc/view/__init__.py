"""A plan as a page of HTML: the graph drawn, its kernels, a roofline, the text of each stage."""
