"""Where sentences end: a text -> the offsets of its sentence ends, by rules of many languages, as given, or by a plug.

    "Dr. No left. He ran!\\nOK"  ->  [12, 20, 23]    a sentence is text[ends[i-1]:ends[i]], white space before it

The last end is the text's length without its trailing white space. `rules` never looks further than a few dozen
characters from a stop, so its time is linear whatever the text. The abbreviations stand in the tables below.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

from ordsmed.base.errors import DataError, RecipeError, nearest

Splitter = Callable[[str], list[int]]
NAMES = ("rules", "lines", "none", "blingfire")


def _words(table: str) -> frozenset[str]:
    return frozenset(table.split())


# Before a name or a number: the stop after these ends no sentence, whatever follows.
_LEADS = _words("""
    mr mrs ms mx dr drs prof st rev hon gen col maj capt cpt cmdr cdr lt sgt cpl adm gov sen supt insp messrs
    mme mlle mgr msgr fr sr sra srta dra dn dña ing lic arq hr fru frk adv cand stud siv mag dipl geb verw phd
    ph.d vs viz cf e.g i.e eg ie al approx ca c.a circa resp esp incl excl ibid f.eks feks fks bl.a d.v.s
    dvs m.a.o m.h.t mht p.g.a pga i.h.t iht ifm i.f.m jf jfr evt ev tils tlf mob kl ang vedr kfr ift i.f.t o.s.v
    t.o.m t.ex s.k m.fl f.kr e.kr forts inkl exkl ekskl adr gl ggr st.f sml såk s.u i.s iflg z.b zb u.a d.h dh
    u.u s.o vgl bzw sog ggf evtl bspw insb z.t o.ä.u i.d.r i.a z.zt zzgl abzgl str nr abb abs p.ex par.ex c.-à-d
    apr env p.ej pej vd vds dto p.es sigg dott avv д.р г ул т.е т.к т.н напр им проф акад
""")

# These may close a sentence too: it ends only where the next word is one that begins sentences.
_CLOSERS_TOO = _words("""
    inc corp ltd co bros jr dept assn univ ave blvd rd mt ft dist est a.m p.m am pm etc et.c u.s u.k u.n u.s.a
    e.u d.c b.c a.d n.y l.a ph.d m.d b.a m.a jan feb apr jun jul aug sep sept oct nov dec okt des dez tue
    tues thu thur thurs a.s a/s gmbh s.a
""")

# These end a sentence where a capital follows, and none where a small letter does.
_TAILS = _words("""
    etc osv m.m mm m.v mv o.l ol o.a usw u.s.w o.ä u.ä f.f ff m.fl mfl jr sr usv osb enz
""")

# Before a number only.
_NUMBERS = _words("""
    no nos nr nrs num art arts fig figs eq sec sect ch chap vol vols p pp s ss pg pt § §§ abs bd kap pkt punkt
    rn rz abb tab núm núms n nº pag pág págs cap tit al ex ed v col op ver bl lnr gnr bnr kr eur usd sek dkk pr
    ca kl tlf tel
""")

_MONTHS = _words("""
    januar februar mars april mai juni juli august september oktober november desember dezember december januari
    februari maj augusti jänner märz marts maart mei augustus tammikuuta jahrhundert jahrhunderts jahrhunderte
    weltkrieg weltkriegs weltkrieges bundesliga liga klasse platz kapitel auflage etage geburtstag feb febr jan
    mrz apr aug sept okt nov dez des
""")

# Words that begin sentences: after an abbreviation or an initial they tell a new sentence from a name.
_STARTERS = _words("""
    The This That These Those He She It We They You There Their His Her Its Our My In On At As If When While
    After Before But And Or So For From With Without However Although Though Because Since What Who Where Why
    How Which Is Are Was Were Do Does Did Has Have Had Will Would Can Could Should May Not No Yes Now Then Here
    One Some Many Most All Each Every Also Please Thanks Both Another Such To Of By Det Den De Dette Disse Han
    Hun Vi Jeg Du Dere Som Når Da Men Og I På Etter Før Hvis Om Fra Med Uten Hva Hvem Hvor Hvorfor Er Var Har Så
    Der Nå Ikke Alle Noen Mange En Et Ett Ved Til Av Jag Ni Dom När Efter Innan Hur Vad Inte Hvad Hvornår Nu Die
    Das Ein Eine Sie Es Wir Ihr Ich Im Am Auf Nach Vor Wenn Als Aber Und Oder Doch Mit Ohne Für Bei Wer Wo Warum
    Wie Dies Diese Le La Les Un Une Il Elle Ils Elles Nous Vous Je Ce Cette Ces Dans Mais Ou Pour Avec Sans
    Quand Si Que Qui Où El Los Las Una Ella Ellos Esto Este Esta Pero Y Con Sin Cuando Por Para Lo Gli
""")

_OPEN = "\"'“”„‘‚«»‹›([{¿¡「『（《〈【*_"
_SHUT = "\"'“”’‘»«›)]}」』）》〉】*_"
_STOPS = ".!?…‼⁇⁈⁉。！？｡．।॥؟۔։።။"
_TIGHT = frozenset("。！？｡．।॥؟۔።။")  # these stops need no white space after them
_CANDIDATE = re.compile(
    rf"\n|(?<![{_STOPS}])([{_STOPS}]++)"  # 1 the stops
    rf"([{re.escape(_SHUT)}]*+(?:[ \u00a0\u202f][»)\]](?=\s|\Z))?+)"  # 2 closing marks
    r"(?=(\s++)?+"  # 3 white space
    rf"((?:[{re.escape(_OPEN)}]|[-–—•·>#]++[ \u00a0])*+)(\w{{1,20}}+)?+)"  # 4 opening marks, 5 the next word
)
_WORD = re.compile(r"[^\s()\[\]{}\"'“”„«»‹›…–—,;:!?/|*_]*\Z")
_BACK = 30  # characters looked at before a stop


def splitter(name: str) -> Splitter:
    """The splitter of a name in a recipe: `rules`, `lines`, `none`, `blingfire`, or `package.module:function`."""
    if name == "blingfire":
        return _blingfire()
    if ":" in name:
        return _plug(name)
    known: dict[str, Splitter] = {"rules": rules, "lines": by_lines, "none": whole}
    if name not in known:
        raise RecipeError("sentences", f"`{name}`", "a splitter, or package.module:function", nearest(name, NAMES))
    return known[name]


def whole(text: str) -> list[int]:
    """The whole text is one sequence."""
    end = len(text.rstrip())
    return [end] if end else []


def by_lines(text: str) -> list[int]:
    """Every line is a sentence."""
    ends: list[int] = []
    at = 0
    for line in text.split("\n"):
        if kept := len(line.rstrip()):
            ends.append(at + kept)
        at += len(line) + 1
    return ends


def rules(text: str) -> list[int]:
    """Sentence ends by rules: stops, what stands around them, and line ends."""
    stop = len(text.rstrip())
    ends: list[int] = []
    last = 0  # where the sentence that is being read begins
    for match in _CANDIDATE.finditer(text, 0, stop):
        end = match.end()
        if match[1] is None:
            end = match.start()
            while end > last and text[end - 1].isspace():
                end -= 1
            if end > last:
                ends.append(end)
            last = match.end()
        elif _ends_here(match, last):
            ends.append(end)
            last = end
    if stop and (not ends or ends[-1] < stop):
        ends.append(stop)
    return ends


def _ends_here(match: re.Match[str], last: int) -> bool:
    """Do these stops end the sentence that begins at `last`?"""
    stops, shut, blank, _, word = match.groups()
    if blank is None:
        return stops[-1] in _TIGHT and _tight(match)
    if word is None:
        return _odd(match)
    if stops == ".":
        return _dot(match, last, word) if not shut else not word[0].islower()
    if word[0].islower():
        return (stops[-1] in "!?" and not shut and "." not in stops) or word in ("http", "https", "www")
    return True


def _tight(match: re.Match[str]) -> bool:
    """After a stop that needs no space: not before a comma, nor before the particle that takes up a quotation."""
    after = match.string[match.end() : match.end() + 1]
    return after not in "、，,；;：:" and not (match[2] and "ぁ" <= after <= "ゟ")


def _odd(match: re.Match[str]) -> bool:
    """No word follows, but a sign or the end."""
    at = match.end() + len(match[3]) + len(match[4])
    return match.string[at : at + 1] not in ",;:)]}" + _STOPS


def _dot(match: re.Match[str], last: int, after: str) -> bool:
    """A single full stop between two words: the end, an abbreviation, an initial or an ordinal?"""
    text, at = match.string, match.start()
    word = _WORD.search(text, max(last, at - _BACK), at)[0]  # type: ignore[index]
    low = word.lower()
    if after[0].isdigit():
        return not (low in _NUMBERS or low in _LEADS or (low in _CLOSERS_TOO and len(after) < 4))
    if after[0].islower():
        return len(low) > 3 and low.isalpha() and low not in _LEADS and low not in _CLOSERS_TOO and low not in _TAILS
    if low in _LEADS:
        return False
    if low in _TAILS:
        return True
    if low in _CLOSERS_TOO or "." in word:
        return after in _STARTERS
    if len(word) == 1 and word.isalpha():
        return word.islower() or after in _STARTERS
    if word.isdigit() and len(word) < 3:
        return not (after.lower() in _MONTHS or (at - last < 9 and not text[last : at - len(word)].strip(" \n*#-")))
    return True


def _blingfire() -> Splitter:
    try:
        import blingfire
    except ImportError:
        raise RecipeError(
            "sentences", "`blingfire` is not installed", "", "`pip install blingfire`, or use `rules`"
        ) from None

    def split(text: str) -> list[int]:
        if not (stop := whole(text)):
            return []
        ends = {end for _, end in blingfire.text_to_sentences_and_offsets(text)[1]}
        return sorted(end for end in ends if 0 < end < stop[0]) + stop

    return split


def _plug(name: str) -> Splitter:
    """A function of outside code; what it returns is checked."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise RecipeError(
            "sentences", f"`{name}`: {error}", "package.module:function", "put its folder on PYTHONPATH or install it"
        ) from None

    def split(text: str) -> list[int]:
        ends = list(function(text))
        steps = zip([0, *ends], ends, strict=False)
        if (ends[-1:] or [0]) != [len(text.rstrip())] or not all(isinstance(b, int) and a < b for a, b in steps):
            raise DataError(
                name,
                f"returned {str(ends)[:60]}",
                f"rising end offsets, the last {len(text.rstrip())}",
                "mend the function",
            )
        return ends

    return split
