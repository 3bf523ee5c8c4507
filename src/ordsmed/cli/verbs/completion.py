"""print a script by which bash, zsh or fish completes verbs, flags, recipes, settings and files

For the present shell:
    bash        source <(ordsmed completion bash)
    zsh         source <(ordsmed completion zsh)
    fish        ordsmed completion fish | source
For all new shells (again after verbs were added):
    bash        ordsmed completion bash > ~/.local/share/bash-completion/completions/ordsmed
    zsh         ordsmed completion zsh > FOLDER/_ordsmed, FOLDER one of $fpath
    fish        ordsmed completion fish > ~/.config/fish/completions/ordsmed.fish
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli import completion

PLACE = ("inspect", 4)


def arguments(parser: Parser) -> None:
    parser.add_argument("shell", choices=completion.SHELLS, metavar="SHELL", help=" ".join(completion.SHELLS))


def run(args: argparse.Namespace) -> None:
    print(completion.script(args.shell), end="")
