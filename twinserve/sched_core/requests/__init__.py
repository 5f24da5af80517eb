"""Requests: their specification, prompt, state and waiting queue."""
