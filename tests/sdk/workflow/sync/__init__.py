"""Bodies that are plain functions, without a worker."""
