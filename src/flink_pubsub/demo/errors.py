"""What may go wrong with the demo itself."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the message says why, and names the mend where there is one."""
