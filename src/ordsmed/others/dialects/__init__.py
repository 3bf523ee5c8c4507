"""Menu: one file a code whose command lines run here; it says of every flag where it goes."""
