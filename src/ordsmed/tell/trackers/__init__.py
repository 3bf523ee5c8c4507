"""Menu: experiment trackers that runs are sent to."""
