"""What knows nothing of language: errors, recipes, menus, run folders, devices, processes."""
