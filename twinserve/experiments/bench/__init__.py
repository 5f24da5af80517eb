"""``twinserve bench-engine``: the real engine beside published engines and the limits of its device."""
