"""How strict YAML is read: paths, overrides, errors that name file and key."""
