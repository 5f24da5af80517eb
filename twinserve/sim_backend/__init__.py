"""The simulator: a SimPy driver and the cost models that price steps."""
