"""The simulator: a SimPy driver for the scheduler core, and the cost models that price its steps."""
