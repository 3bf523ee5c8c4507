"""The menu of this package's commands: each file is one."""
