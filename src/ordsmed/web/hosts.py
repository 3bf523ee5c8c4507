"""Host names as they are looked up: what browsers ask for, by UTS 46 without the deviations of 2003.

faß.de -> xn--fa-hia.de (another owner's is fass.de)      日本。jp -> xn--wgv71a.jp      my_host.com -> my_host.com
"""

import re

ASCII_NAME = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+\.?")


def in_ascii(host: str) -> str:
    """A host name of small letters in ASCII; a ValueError where no name can be so."""
    if host.isascii():
        return host
    import idna

    mapped = idna.uts46_remap(host, std3_rules=False)
    labels = (label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in mapped.split("."))
    name = ".".join(labels)
    if not ASCII_NAME.fullmatch(name):
        raise ValueError(f"{host!r} is no host name")
    return name
