"""Figures of runs, sweeps and profiles: ``plot_...`` draws one and returns it; matplotlib is loaded only then."""
