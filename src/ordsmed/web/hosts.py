"""Host names in ASCII, as browsers look them up: UTS 46 without its transitional deviations.

faß.de -> xn--fa-hia.de (a different domain than fass.de)      日本。jp -> xn--wgv71a.jp      my_host.com -> my_host.com
"""

import re

ASCII_NAME = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+\.?")


def in_ascii(host: str) -> str:
    """Return a lower-case host name in ASCII. Raise ValueError if that is impossible."""
    if host.isascii():
        return host
    import idna

    mapped = idna.uts46_remap(host, std3_rules=False)
    labels = (label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in mapped.split("."))
    name = ".".join(labels)
    if not ASCII_NAME.fullmatch(name):
        raise ValueError(f"{host!r} is not a host name")
    return name
