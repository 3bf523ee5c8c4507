"""Machine: what is got from the network: one careful GET, fetches, crawls, lists of addresses, archives unpacked."""
