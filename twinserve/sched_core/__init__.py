"""The scheduler core: requests, blocks, policies and the step state machine, without clock or I/O."""
