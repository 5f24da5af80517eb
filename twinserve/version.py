"""The version, for the package's metadata, ``twinserve.__version__`` and ``twinserve --version``."""

__version__ = "0.1.0"
