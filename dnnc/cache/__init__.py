"""The cache on disk, and what compilations find there.  docs/caches.md describes it."""
