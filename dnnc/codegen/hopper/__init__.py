"""Parts for sm_90: TMA, mbarriers, clusters, wgmma, pipelines."""
