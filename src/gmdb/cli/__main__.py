"""``python -m gmdb.cli``: the gmdb command without installing it."""

import sys

from gmdb.cli.program import main

sys.exit(main())
