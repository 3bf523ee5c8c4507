"""Reports of what runs did: state, pages, charts, seeds compared, trackers."""
