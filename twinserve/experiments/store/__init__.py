"""Folders of runs and profiles, written and read back."""
