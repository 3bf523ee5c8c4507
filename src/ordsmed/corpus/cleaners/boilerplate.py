"""Remove lines that are not prose: menus, cookie banners, copyright notices, share buttons, JavaScript warnings.

    Home                        (with its neighbors: a menu at the edge of the text)
    About us
    Contact
    The fire began at noon and was out by four, the fire chief said.
    We use cookies to improve our services.     (a phrase of PHRASES in a short line)
    Read more                                   (a whole line of LINES)
    © 2019 The Local Paper AS                   (copyright)

Only lines of up to 160 characters are examined. A phrase of PHRASES counts anywhere in such a line, in any case. A
phrase of LOOSE may be in prose, too: it counts only if it is the whole line or the line does not end in a stop.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ordsmed.base.checks import at_least, regular
from ordsmed.base.menu import Choice

PHRASES = {
    "en": """all rights reserved | we use cookies | uses cookies | accept cookies | accept all cookies
        cookie policy | cookie settings | cookie preferences | share on facebook | share on twitter
        share via email | enable javascript | javascript is disabled | javascript is required | requires javascript
        javascript enabled | skip to content | skip to main content | skip to navigation
        sign up for our newsletter | subscribe to our newsletter | terms and conditions apply
        your email address will not be published | you must be logged in | log in to comment | powered by wordpress
        this site is protected by recaptcha | advertisement - continue reading""",
    "nb nn": """bruker informasjonskapsler | brukar informasjonskapslar | bruker cookies | brukar cookies
        godta alle cookies | godta informasjonskapsler | del på facebook | del på e-post | aktiver javascript
        slå på javascript | krever javascript | krev javascript | hopp til innhold | hopp til hovedinnhold
        hopp til hovudinnhald | meld deg på nyhetsbrev | meld deg på vårt nyhetsbrev | personvern og cookies
        artikkelen fortsetter under annonsen | alle rettigheter forbeholdt | alle rettigheter reservert
        alle rettar reserverte""",
    "da sv": """vi bruger cookies | del på facebook | tilmeld dig nyhedsbrevet | slå javascript til
        vi använder cookies | vi använder kakor | dela på facebook | aktivera javascript
        prenumerera på vårt nyhetsbrev | hoppa till innehåll | alle rettigheder forbeholdes
        alle rettigheder forbeholdt | alla rättigheter förbehållna""",
    "de": """alle rechte vorbehalten | verwenden cookies | verwendet cookies | nutzen cookies | nutzt cookies
        cookies akzeptieren | cookie-einstellungen | auf facebook teilen | aktivieren sie javascript
        javascript aktivieren | javascript ist deaktiviert | zum inhalt springen | zum hauptinhalt
        newsletter abonnieren | newsletter anmelden""",
    "fr": """tous droits réservés | utilisons des cookies | utilise des cookies | accepter les cookies
        partager sur facebook | activer javascript | aller au contenu | abonnez-vous à notre
        inscrivez-vous à notre newsletter""",
    "es pt it nl": """todos los derechos reservados | utilizamos cookies | utiliza cookies | compartir en facebook
        habilitar javascript | saltar al contenido | suscríbete a nuestro | todos os direitos reservados
        este site usa cookies | pular para o conteúdo | tutti i diritti riservati | utilizziamo i cookie
        utilizza i cookie | condividi su facebook | vai al contenuto | alle rechten voorbehouden | gebruikt cookies
        gebruiken cookies | delen op facebook | ga naar de inhoud""",
    "fi pl ru": """kaikki oikeudet pidätetään | käyttää evästeitä | jaa facebookissa | wszelkie prawa zastrzeżone
        używa plików cookie | wykorzystuje pliki cookie | все права защищены | использует файлы cookie
        используем файлы cookie | включите javascript""",
    "any": "lorem ipsum | dolor sit amet",
}
LOOSE = {
    "en": """share this article | share this post | share this page | share this story | click to share
        terms of service | leave a reply | follow us on | add to cart | back to top""",
    "nb nn": """alle rettigheter | alle rettar | del artikkelen | del saken | følg oss på | ansvarlig redaktør
        ansvarleg redaktør | til toppen av siden | legg i handlekurv""",
    "da sv": """alle rettigheder | alla rättigheter | dela artikeln""",
    "de": """artikel teilen | in den warenkorb | nach oben scrollen""",
    "fr": """partager cet article | ajouter au panier""",
    "ru": """поделиться в""",
}
LINES = {
    "en": """share | share this | tweet | print | email | e-mail | read more | continue reading | learn more | more
        menu | home | search | log in | login | sign in | sign up | register | subscribe | contact | contact us
        about us | privacy | privacy policy | terms of use | sitemap | advertisement | sponsored | comments
        no comments | related articles | related posts | next | previous | loading | close
        click here | show more | back""",
    "nb nn": """del | del på | skriv ut | les mer | les meir | les også | les også denne | mer | meny | hjem | heim
        søk | logg inn | logg ut | registrer deg | abonner | kontakt | kontakt oss | om oss | personvern | annonse
        annonsørinnhold | kommentarer | kommentarar | neste | forrige | førre | tips oss | lukk | laster
        vis mer | vis meir | relaterte artikler | tilbake""",
    "da sv": """læs mere | læs også | log ind | søg | hjem | forside | annonce | läs mer | läs också | logga in | sök
        annons | kontakta oss | om oss | nästa | föregående | stäng | visa mer""",
    "de": """teilen | drucken | weiterlesen | mehr lesen | mehr erfahren | mehr | menü | startseite | suche | suchen
        anmelden | einloggen | registrieren | kontakt | impressum | datenschutz | datenschutzerklärung | agb | anzeige
        werbung | kommentare | weiter | zurück | schließen""",
    "fr": """partager | imprimer | lire la suite | en savoir plus | accueil | rechercher | recherche | se connecter
        connexion | s'inscrire | contact | contactez-nous | mentions légales | publicité | commentaires | suivant
        précédent | fermer""",
    "es pt it nl": """compartir | leer más | inicio | buscar | iniciar sesión | contacto | publicidad | siguiente
        compartilhar | leia mais | entrar | contato | leggi tutto | condividi | cerca | accedi | contatti | pubblicità
        lees meer | delen | zoeken | inloggen | advertentie""",
    "fi pl ru": """lue lisää | jaa | haku | etusivu | czytaj dalej | udostępnij | szukaj | читать далее | поделиться
        поиск""",
}
LONGEST = 160  # most characters of a line that is examined
MENU_LINE = 30  # most characters of a line of a menu

_WORD = re.compile(r"\w+")
# no quotation marks and stops, because lines with them may be dialog
_BARE = re.compile(r"[\s>»›|•·:…–-]*+[\w](?:[\w' -]*\w)?[\s>»›|•·:…–-]*+")
_SIGN = r"(?:copyright\b|opphavsrett\b|urheberrecht\b|\(c\)|©)"
_COPYRIGHT = re.compile(rf"{_SIGN}[^\n]{{0,80}}(?:19|20)\d\d|©", re.IGNORECASE)
_SURE_COPYRIGHT = re.compile(rf"{_SIGN}(?:{_SIGN}|[^\w\n]){{0,20}}(?:19|20)\d\d|©.{{0,20}}(?:19|20)\d\d", re.IGNORECASE)
_STOP = re.compile(r"[.?…。？۔।][\"'”’»)\]]*\s*\Z")
_PROSE_ENDS = tuple(".!?…:;,\"'”’»)]。！？؟۔।।")


def _words(line: str) -> str:
    return " ".join(_WORD.findall(line.lower()))


def _entries(table: dict[str, str]) -> list[str]:
    return [words for text in table.values() for entry in re.split(r"[|\n]", text) if (words := _words(entry))]


_LINES = frozenset(_entries(LINES))
_LOOSE = frozenset(f" {phrase} " for phrase in _entries(LOOSE))
_PHRASES = defaultdict[str, list[str]](list)  # by their longest word, which most lines do not contain
for _phrase in _entries(PHRASES) + _entries(LOOSE):
    _PHRASES[max(_phrase.split(), key=len)].append(f" {_phrase} ")


@dataclass(frozen=True)
class Boilerplate(Choice):
    """Removes lines that are not prose: menus, cookie banners, copyright notices, share buttons."""

    menu: int = 6
    "at least this many lines of up to 30 characters without a stop at either end of a text are a menu; 0: never"
    also: list[str] = field(default_factory=list)
    "regular expressions; a line of any length that contains a match is removed"

    def __post_init__(self) -> None:
        at_least(self, menu=0)
        regular("also", self.also)

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        also = re.compile("|".join(f"(?:{pattern})" for pattern in self.also)) if self.also else None
        lines = text.split("\n")
        remaining = [line for line in lines if not _is_boilerplate(line) and not (also and also.search(line))]
        if self.menu:
            remaining = _without_menus(remaining, self.menu)
        return "\n".join(remaining)


def _is_boilerplate(line: str) -> bool:
    if len(line) > LONGEST or not line:
        return False
    words, sentence = _words(line), _STOP.search(line) is not None
    owned = _SURE_COPYRIGHT if sentence else _COPYRIGHT
    if (words in _LINES and _BARE.fullmatch(line)) or owned.match(line.lstrip()):
        return True
    spaced = f" {words} "
    phrases = (phrase for key in _PHRASES.keys() & words.split() for phrase in _PHRASES[key] if phrase in spaced)
    return any(phrase == spaced or not (sentence and phrase in _LOOSE) for phrase in phrases)


def _without_menus(lines: list[str], least: int) -> list[str]:
    """Remove menus at both ends. A text with only short lines is a poem or a list, and is kept."""
    head = _menu(lines)
    if head == len(lines):
        return lines
    tail = _menu(lines[::-1])
    head, tail = (
        count if sum(bool(line.strip()) for line in part) >= least else 0
        for count, part in ((head, lines[:head]), (tail, lines[len(lines) - tail :]))
    )
    return lines[head : len(lines) - tail]


def _menu(lines: list[str]) -> int:
    for number, line in enumerate(lines):
        line = line.strip()
        if len(line) > MENU_LINE or line.endswith(_PROSE_ENDS):
            return number
    return len(lines)
