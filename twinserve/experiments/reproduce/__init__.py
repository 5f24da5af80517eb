"""Published measurements, simulated again and compared."""
