"""What several test files build with: texts, stores, recipes, servers, processes that can be killed."""
