"""``python -m twinserve`` is the ``twinserve`` command, in any folder."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    sys.path.append(sys.path.pop(0))  # a module of the user's must not stand in for one of ours or of Python's

from twinserve.experiments.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
