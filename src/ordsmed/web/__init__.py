"""Downloads: one careful GET, fetches, crawls, lists of addresses, archives unpacked."""
