"""The YAML of an experiment as typed, frozen sections."""
