"""The scheduler: it decides what each step computes, and does nothing else."""
