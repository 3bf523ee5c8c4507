"""Menu: every file here is one choice of `kind`; one file adds one."""
