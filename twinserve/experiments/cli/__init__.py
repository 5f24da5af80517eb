"""The ``twinserve`` command line, one module per subcommand."""
