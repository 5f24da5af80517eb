"""What ``import twinserve`` offers: the experiments as functions and DataFrames. No logic of its own."""
