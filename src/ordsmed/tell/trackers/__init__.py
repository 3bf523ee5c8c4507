"""Menu: trackers of experiments that runs are sent to."""
