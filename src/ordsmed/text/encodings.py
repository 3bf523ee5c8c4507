"""Detect the encoding of bytes by byte order marks, zeros and escapes, or guess it from the letters of known languages.

    b"\\xff\\xfeH\\0e\\0" -> "utf-16"    b"\\x1b$B..." -> "iso2022_jp"    b"...\\xe5 v\\xe6re" -> "cp1252"    else None

An encoding is guessed only if it alone decodes the bytes to letters that are usual in a language. A few lines may not
be enough.
"""

import codecs
import re
from collections import Counter
from itertools import pairwise

SAMPLE = 1 << 16  # bytes that are examined
AUTO = "auto"
FEWEST = 8  # smallest number of bytes outside ASCII with which a non-Latin alphabet is detected
LEAST, AHEAD = 0.6, 0.08  # least score of the best encoding, and its least distance to the second best

_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
)
_MARKS += ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ESCAPES = ((re.compile(rb"\x1b\$\)C"), "iso2022_kr"), (re.compile(rb"\x1b\$(?:[@AB]|\([@-Z])"), "iso2022_jp_2"))
_HZ = re.compile(rb"~\{(?:[\x21-\x77][\x21-\x7e])+~\}")
_RUN = re.compile(rb"[\x80-\xff]+")
_NEUTRAL = frozenset("‘’‚“”„«»‹›–—…•·°§©®™£€\u00a0\u00ad¡¿º、。，．・「」『』（）？！：；\u3000")

# The letters outside ASCII that are frequent in a language, and their usual share of all letters outside ASCII.
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž")
_LATIN = {
    "cp1252": (
        "æøåéèêòôóäöü",
        "åäöé",
        "áðéíóúýþæö",
        "äöüßé",
        "éèêëàâçîïôùûœæ",
        "áéíóúñü",
        "ãõáéíóúâêôàç",
        "àèéìíòóùú",
        "éëïöü",
        "äõöüšž",
    ),
    "cp1250": _CENTRAL,
    "iso8859-2": _CENTRAL,
    "cp1254": ("çğıöşüâî",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
}
_CYRILLIC, _KANA = "оеаинтсрвлкмдпу", "".join(map(chr, range(0x3041, 0x30FB)))
_OTHER = {
    "cp1251": (_CYRILLIC, 0.8),
    "koi8-r": (_CYRILLIC, 0.8),
    "iso8859-5": (_CYRILLIC, 0.8),
    "cp866": (_CYRILLIC, 0.8),
    "cp1253": ("αοιετνσρκπμλυςηγδχάέήίόύώ", 0.9),
    "cp1255": ("יוהלארתמבש", 0.66),
    "cp1256": ("اليمونرتبه", 0.66),
    "iso8859-6": ("اليمونرتبه", 0.66),
    "cp874": ("านรอกเงมยล่ว", 0.6),
    "cp932": (_KANA, 0.4),
    "euc_jp": (_KANA, 0.4),
    "gb18030": ("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年", 0.16),
    "cp950": ("的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年", 0.16),
    "cp949": ("이다는을의에가고하지은를한로도기사어리자인시그나대해있서수", 0.3),
}
_WIDE = {name: [_OTHER[of] for of in ("euc_jp", "gb18030", "cp950", "cp949")] for name in ("utf-16-le", "utf-16-be")}
_VARIANTS = (  # pairs of encodings that differ in a few letters, and bytes that indicate the second
    ("koi8-r", "koi8-u", re.compile(rb"[\xa4\xa6\xa7\xad\xb4\xb6\xb7\xbd][\xc0-\xff]|[\xc0-\xff][\xa4\xa6\xa7\xad]")),
    ("cp1252", "iso8859-15", re.compile(rb"[\xa4\xbc\xbd\xbe][A-Za-z\xc0-\xff]|[A-Za-z\xc0-\xff][\xa6\xa8\xb8\xbd]")),
)
_C1 = re.compile(rb"[\x80-\x9f]")


def canonical_name(name: str) -> str:
    """Return Python's name of a text encoding, or "auto". Raise ValueError for an unknown name."""
    if name == AUTO:
        return name
    try:
        "a".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError, TypeError):
        raise ValueError(f"encoding: found {name!r}; wanted a name such as windows-1252, or {AUTO!r}") from None


def marked(sample: bytes) -> str | None:
    """Detect UTF-8, -16 or -32 by a byte order mark, or UTF-16 by its bytes. Return None if neither is found."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    if len(sample) < 16 or not (utf_16 := _utf_16(sample)):
        return None
    text = sample[: len(sample) // 2 * 2].decode(utf_16, "replace")
    odd = sum(text.count(sign) for sign in "\ufffd\0\ufffe\uffff")
    return utf_16 if odd * 100 <= len(text) else None


def _utf_16(sample: bytes) -> str | None:
    """Return the UTF-16 byte order that the sample may have, or None.

    In UTF-16 one half of most characters is zero or the number of a Unicode block (\\x04: Cyrillic).
    """
    halves = {"utf-16-be": Counter(sample[0 : len(sample) // 2 * 2 : 2]), "utf-16-le": Counter(sample[1::2])}
    name = max(halves, key=lambda half: halves[half][0])
    zeros, fewer = sorted((half[0] for half in halves.values()), reverse=True)
    if not zeros or 20 * fewer > zeros:
        return None
    block, count = max(
        ((byte, n) for byte, n in halves[name].items() if byte), key=lambda pair: pair[1], default=(0, 0)
    )
    if block < 0x20 and 6 * count > len(sample) // 2 and 1.1 * (count + zeros) > len(sample) // 2:
        return name if 50 * zeros > len(sample) or block not in b"\t\n\r" else None
    if 50 * zeros < len(sample):  # line ends contain a zero byte in every script
        return None
    # UTF-16 is valid UTF-8 only if all is ASCII, and then half of the bytes are zero
    if 4 * zeros < len(sample) and _is_utf_8(sample):
        return None
    return name


def _is_utf_8(sample: bytes) -> bool:
    try:
        codecs.utf_8_decode(sample, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def escaped(sample: bytes) -> str | None:
    """Detect encodings of Japanese, Korean or Chinese that use only ASCII bytes, by their escape sequences."""
    for pattern, name in _ESCAPES:
        if b"\x1b" in sample and pattern.search(sample):
            return name
    if b"~{" in sample and len(escapes := _HZ.findall(sample)) >= 2:
        try:
            b"".join(escapes).decode("hz")
        except UnicodeDecodeError:
            return None
        return "hz"
    return None


def guess(sample: bytes, whole: bool) -> str | None:
    """Return the encoding of a text that begins with `sample`, or None if unclear. `whole`: the sample is the text."""
    if sure := marked(sample) or escaped(sample):
        return sure
    text = codecs.utf_8_decode(sample, "replace", whole)[0]
    high = len(text) - sum(map(str.isascii, text))
    if text.count("\ufffd") * 20 <= high:
        return "utf-8"
    runs = _RUN.findall(sample)
    length = sum(map(len, runs))
    latin = length < 1.8 * len(runs)  # letters of non-Latin alphabets are next to one another
    if not latin and length < FEWEST:
        return None
    fits, elsewhere = [], {name: [fit] for name, fit in _OTHER.items()}
    alphabets = {name: [(alphabet, 1.0) for alphabet in table] for name, table in _LATIN.items()}
    for name, of in ((alphabets if latin else elsewhere) | _WIDE).items():
        if (read := _read(sample, name)) is not None:
            counts = Counter(c for c in read.lower() if c > "\x7f" and c not in _NEUTRAL)
            fits.append((max(_share(counts, *fit) for fit in of) * _cased(read), name, read))
    fits.sort(key=lambda fit: -fit[0])
    if not fits or fits[0][0] < LEAST:
        return None
    runners_up = [fit[0] for fit in fits[1:] if fit[2] != fits[0][2]]
    return _variant(fits[0][1], sample) if fits[0][0] - max(runners_up, default=0.0) >= AHEAD else None


def _variant(name: str, sample: bytes) -> str:
    for usual, similar, pattern in _VARIANTS:
        if name == usual and pattern.search(sample) and not (usual == "cp1252" and _C1.search(sample)):
            return similar
    return name


def _cased(read: str) -> float:
    """Return 1, or a smaller factor if many capitals follow small letters, as when KOI8 is read as ISO 8859-7."""
    turns = sum(a > "\x7f" and a.islower() and b.isupper() for a, b in pairwise(read))
    return 1 - min(1.0, 10 * turns / max(1, sum(character > "\x7f" for character in read)))


def _share(counts: Counter[str], alphabet: str, usual: float) -> float:
    """Return how well the characters fit a language: the share of its letters over the usual share, at most 1."""
    known = sum(count for character, count in counts.items() if character in alphabet)
    return min(known / counts.total() / usual, 1.0) if counts else 1.0


def _read(sample: bytes, name: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)().decode(sample)
    except UnicodeDecodeError:
        return None
