"""The fused pointwise kernels of a decoder layer: plain torch, and Triton for CUDA devices."""
