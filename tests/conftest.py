"""What holds for all tests."""

from hypothesis import settings

settings.register_profile("twinserve", deadline=None)  # a busy machine is no failure
settings.load_profile("twinserve")
