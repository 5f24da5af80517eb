"""From plans to the device's input buffers."""
