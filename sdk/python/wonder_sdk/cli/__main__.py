"""``python -m wonder_sdk.cli``: the ``wonder`` command for environments without its script."""

from __future__ import annotations

import sys

from wonder_sdk.cli import main

sys.exit(main())
