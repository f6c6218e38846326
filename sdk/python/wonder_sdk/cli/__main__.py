"""``python -m wonder_sdk.cli``: the ``wonder`` command where its script is not on the path."""

from __future__ import annotations

import sys

from wonder_sdk.cli import main

sys.exit(main())
