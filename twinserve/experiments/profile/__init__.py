"""A profile of the real engine, from its configuration to its folder."""
