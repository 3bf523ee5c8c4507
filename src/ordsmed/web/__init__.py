"""HTTP downloads, fetch tables, crawls, lists of addresses, and unpacking of archives."""
