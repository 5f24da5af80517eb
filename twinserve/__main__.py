"""``python -m twinserve`` is the ``twinserve`` command."""

import sys

from twinserve.experiments.cli.main import main

sys.exit(main())
