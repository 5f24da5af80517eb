"""KV cache blocks: the pool, its prefix cache, block tables per request."""
