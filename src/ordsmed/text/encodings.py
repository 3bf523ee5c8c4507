"""Which encoding bytes are in: what their marks, zeros and escapes say, or a careful guess by the letters of languages.

    b"\\xff\\xfeH\\0e\\0" -> "utf-16"    b"\\x1b$B..." -> "iso2022_jp"    b"...\\xe5 v\\xe6re" -> "cp1252"    else None

A guess is only made where one encoding gives what people write and no other does; a few lines may not be enough.
"""

import codecs
import re
from collections import Counter
from itertools import pairwise

SAMPLE = 1 << 16  # bytes that are looked at
AUTO = "auto"
FEWEST = 8  # bytes beyond ASCII that tell another alphabet
LEAST, AHEAD = 0.6, 0.08  # how well the best must fit, and how much better than the next

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

# Letters that texts of a language are mostly made of, beside ASCII's; and the share of them that is usual.
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž")
_LATIN = {
    "cp1252": ("æøåéèêòôóäöü", "åäöé", "áðéíóúýþæö", "äöüßé", "éèêëàâçîïôùûœæ", "áéíóúñü", "ãõáéíóúâêôàç", "àèéìíòóùú",
               "éëïöü", "äõöüšž"),
    "cp1250": _CENTRAL, "iso8859-2": _CENTRAL, "cp1254": ("çğıöşüâî",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
}  # fmt: skip
_CYRILLIC, _KANA = "оеаинтсрвлкмдпу", "".join(map(chr, range(0x3041, 0x30FB)))
_OTHER = {
    "cp1251": (_CYRILLIC, 0.8), "koi8-r": (_CYRILLIC, 0.8), "iso8859-5": (_CYRILLIC, 0.8), "cp866": (_CYRILLIC, 0.8),
    "cp1253": ("αοιετνσρκπμλυςηγδχάέήίόύώ", 0.9), "cp1255": ("יוהלארתמבש", 0.66), "cp1256": ("اليمونرتبه", 0.66),
    "iso8859-6": ("اليمونرتبه", 0.66),
    "cp874": ("านรอกเงมยล่ว", 0.6),
    "cp932": (_KANA, 0.4), "euc_jp": (_KANA, 0.4),
    "gb18030": ("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年", 0.16),
    "cp950": ("的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年", 0.16),
    "cp949": ("이다는을의에가고하지은를한로도기사어리자인시그나대해있서수", 0.3),
}  # fmt: skip
_WIDE = {name: [_OTHER[of] for of in ("euc_jp", "gb18030", "cp950", "cp949")] for name in ("utf-16-le", "utf-16-be")}
_NEARLY = (  # encodings that differ in a few letters alone, and bytes that tell the second
    ("koi8-r", "koi8-u", re.compile(rb"[\xa4\xa6\xa7\xad\xb4\xb6\xb7\xbd][\xc0-\xff]|[\xc0-\xff][\xa4\xa6\xa7\xad]")),
    ("cp1252", "iso8859-15", re.compile(rb"[\xa4\xbc\xbd\xbe][A-Za-z\xc0-\xff]|[A-Za-z\xc0-\xff][\xa6\xa8\xb8\xbd]")),
)
_C1 = re.compile(rb"[\x80-\x9f]")


def known(name: str) -> str:
    """The name of an encoding of text, as Python spells it; ValueError where there is none of this name."""
    if name == AUTO:
        return name
    try:
        "a".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError, TypeError):
        raise ValueError(f"encoding: found {name!r}; wanted a name such as windows-1252, or {AUTO!r}") from None


def marked(sample: bytes) -> str | None:
    """UTF-8, -16 or -32 by the mark at the beginning, UTF-16 by its zeros or by the other signs that no text has."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    if len(sample) < 16 or not (wide := _utf_16(sample)):
        return None
    text = sample[: len(sample) // 2 * 2].decode(wide, "replace")
    odd = sum(text.count(sign) for sign in "\ufffd\0\ufffe\uffff")
    return wide if odd * 100 <= len(text) else None


def _utf_16(sample: bytes) -> str | None:
    """Which order of bytes it would be: of the halves of its signs one is zero, or a block of few (\x04: Cyrillic)."""
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
    if 50 * zeros < len(sample):  # a line end has one in every script
        return None
    if 4 * zeros < len(sample) and _is_utf_8(sample):  # only ASCII in UTF-16 is that too, and half of it zeros
        return None
    return name


def _is_utf_8(sample: bytes) -> bool:
    try:
        codecs.utf_8_decode(sample, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def escaped(sample: bytes) -> str | None:
    """An encoding of Japanese, Korean or Chinese that is written in ASCII: by its escapes."""
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
    """The encoding of a text that begins so; None: it cannot be told. `whole`: there is no more of it."""
    if sure := marked(sample) or escaped(sample):
        return sure
    text = codecs.utf_8_decode(sample, "replace", whole)[0]
    high = len(text) - sum(map(str.isascii, text))
    if text.count("\ufffd") * 20 <= high:
        return "utf-8"
    runs = _RUN.findall(sample)
    length = sum(map(len, runs))
    latin = length < 1.8 * len(runs)  # letters of other alphabets stand beside one another
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
    rest = [fit[0] for fit in fits[1:] if fit[2] != fits[0][2]]
    return _nearly(fits[0][1], sample) if fits[0][0] - max(rest, default=0.0) >= AHEAD else None


def _nearly(name: str, sample: bytes) -> str:
    """The encoding itself, or the one beside it that has letters where this one has signs."""
    for usual, similar, pattern in _NEARLY:
        if name == usual and pattern.search(sample) and not (usual == "cp1252" and _C1.search(sample)):
            return similar
    return name


def _cased(read: str) -> float:
    """1 where capitals stand as people write them, less where they follow small letters: KOI8 is ISO 8859-7 so."""
    turns = sum(a > "\x7f" and a.islower() and b.isupper() for a, b in pairwise(read))
    return 1 - min(1.0, 10 * turns / max(1, sum(character > "\x7f" for character in read)))


def _share(counts: Counter[str], alphabet: str, usual: float) -> float:
    """How well signs fit a language."""
    known = sum(count for character, count in counts.items() if character in alphabet)
    return min(known / counts.total() / usual, 1.0) if counts else 1.0


def _read(sample: bytes, name: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)().decode(sample)
    except UnicodeDecodeError:
        return None
