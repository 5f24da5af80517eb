"""Strict YAML settings of any kind: reading, overrides, schema and one-line errors."""
