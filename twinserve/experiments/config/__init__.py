"""The experiment's configuration: its sections, and the files that they name."""
