"""Jobs on a cluster: write and submit them, estimate their time, and list those that were submitted."""
