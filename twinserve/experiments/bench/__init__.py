"""``twinserve bench-engine``: the real engine compared with published engines and with its device's limits."""
