"""For all tests: a run that is not about its page draws none."""

from __future__ import annotations

import os

os.environ["PROWD_REPORT"] = "0"
