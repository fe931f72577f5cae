"""Signal handlers that raise, at random moments and at every point of every operation: nothing may be half done."""
