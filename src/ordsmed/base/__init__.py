"""Infrastructure without any knowledge of language: errors, recipes, menus, run folders, devices, processes."""
