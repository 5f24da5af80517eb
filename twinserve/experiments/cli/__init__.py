"""The subcommands of ``twinserve``."""
