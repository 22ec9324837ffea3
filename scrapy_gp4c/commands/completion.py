"""``scrapy gp4c completion``: a shell function by which bash and zsh complete the command's words."""

import re
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Final

FUNCTION: Final = """\
# Completes the words of `scrapy gp4c` in bash and zsh: source this file.
if [ -n "${{ZSH_VERSION-}}" ]; then autoload -Uz compinit bashcompinit && compinit && bashcompinit; fi
_scrapy_gp4c() {{
    [ "${{COMP_WORDS[1]}}" = gp4c ] || return
    local word="${{COMP_WORDS[COMP_CWORD]}}" action="${{COMP_WORDS[2]}}" spider_at=3 words=
    if [ "$action" = store ]; then action="store ${{COMP_WORDS[3]}}" spider_at=4; fi
    case "$COMP_CWORD $action $word" in
        "2 "*) words="{actions}" ;;
        "3 store "*) words="{store_actions}" ;;
        "$spider_at $action -"*) ;;
        "$spider_at "*) words=$(scrapy list 2>/dev/null) ;;
    esac
    case "$word" in -*) case "$action" in
{options}
    esac ;; esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _scrapy_gp4c scrapy"""
"""Template of the shell function; where it proposes no word, the shell completes file names."""


def script(parsers: Mapping[str, ArgumentParser]) -> str:
    """Return the shell function that completes actions, spiders and options; ``parsers``: by action name."""
    options = {
        name: dict.fromkeys(re.findall(r"--[a-z-]+", parser.format_usage()))
        for name, parser in parsers.items()
    }
    return FUNCTION.format(
        actions=" ".join(dict.fromkeys(name.split()[0] for name in parsers)),
        store_actions=" ".join(name.split()[1] for name in parsers if " " in name),
        options="\n".join(
            f'        "{name}") words="{" ".join(words)}" ;;' for name, words in options.items() if words
        ),
    )
