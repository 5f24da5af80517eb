"""From input buffers to sampled ids: eager launches and CUDA graphs."""
