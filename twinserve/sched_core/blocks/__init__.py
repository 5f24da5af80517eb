"""KV-cache blocks: the pool, the prefix-cache index and each request's block table."""
