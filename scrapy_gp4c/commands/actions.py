"""Table of the actions of ``scrapy gp4c``, their parsers and help, and running one."""

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable
from textwrap import wrap
from typing import Any, Final

from scrapy.settings import Settings

from scrapy_gp4c.commands.action import Action
from scrapy_gp4c.commands.changes import CHANGES
from scrapy_gp4c.commands.failing import FAILING
from scrapy_gp4c.commands.fetcher import FETCHER
from scrapy_gp4c.commands.files import EXPORT, HINT, IMPORT
from scrapy_gp4c.commands.forget import FORGET
from scrapy_gp4c.commands.history import HISTORY
from scrapy_gp4c.commands.learning import (
    BUDGET,
    CLUSTER,
    EVALUATE,
    EXPERIMENT,
    LEARN,
    REPORT,
    TrainingCommand,
)
from scrapy_gp4c.commands.monitor import MONITOR
from scrapy_gp4c.commands.notices import FEED, METRICS, NOTIFY
from scrapy_gp4c.commands.pages import PAGES, SEARCH
from scrapy_gp4c.commands.plan import PLAN
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.commands.status import STATUS
from scrapy_gp4c.commands.store import BACKUP, COMPACT, RESTORE, STORES, VERIFY
from scrapy_gp4c.commands.text import TEXT
from scrapy_gp4c.commands.why import WHY
from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.foreign_text import printable
from scrapy_gp4c.scoring.functions import ScoreParser

Actions = dict[str, Action | TrainingCommand]


SHELL_FUNCTION: Final = """\
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


def _completion(_settings: Settings, _options: argparse.Namespace) -> None:
    """Print the shell function that completes actions, spiders and options."""
    parsers = add_actions(argparse.ArgumentParser(), lambda _: None)
    options = {
        name: dict.fromkeys(re.findall(r"--[a-z-]+", parser.format_usage()))
        for name, parser in parsers.items()
    }
    print(
        SHELL_FUNCTION.format(
            actions=" ".join(dict.fromkeys(name.split()[0] for name in parsers)),
            store_actions=" ".join(name.split()[1] for name in parsers if " " in name),
            options="\n".join(
                f'        "{name}") words="{" ".join(words)}" ;;' for name, words in options.items() if words
            ),
        )
    )


COMPLETION: Final = Action("print a shell function that completes these words", _completion)
GROUPS: Final[dict[str, Actions]] = {
    "look": {
        "status": STATUS,
        "changes": CHANGES,
        "history": HISTORY,
        "failing": FAILING,
        "plan": PLAN,
        "why": WHY,
        "report": REPORT,
    },
    "be told": {"feed": FEED, "notify": NOTIFY, "metrics": METRICS},
    "crawl and learn": {"monitor": MONITOR, "learn": LEARN},
    "care": {"stores": STORES},
    "more": {
        "pages": PAGES,
        "text": TEXT,
        "search": SEARCH,
        "hint": HINT,
        "export": EXPORT,
        "import": IMPORT,
        "forget": FORGET,
        "cluster": CLUSTER,
        "fetcher": FETCHER,
        "evaluate": EVALUATE,
        "budget": BUDGET,
        "experiment": EXPERIMENT,
        "completion": COMPLETION,
    },
}
"""Heading in the help -> name -> action; of heading ``more`` the help has only the names."""
STORE: Final[Actions] = {"verify": VERIFY, "backup": BACKUP, "restore": RESTORE, "compact": COMPACT}
"""Name -> action of ``scrapy gp4c store``."""
ACTIONS: Final[Actions] = {
    **{name: action for group in GROUPS.values() for name, action in group.items()},
    **{f"store {name}": action for name, action in STORE.items()},
}
"""Words after ``scrapy gp4c`` -> action, for all actions."""
IN_PLACE_OF_SETTINGS = {"budget": "GP4C_BUDGET", "score": "GP4C_SCORE_FUNCTION"}
"""Option of an action -> setting that it overrides."""


def add_actions(
    parser: argparse.ArgumentParser, add_global_options: Callable[[Any], None]
) -> dict[str, argparse.ArgumentParser]:
    """Add a parser for every action, with Scrapy's global options; returns name of the action -> parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = overview()
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", help="one of these:", parser_class=ScoreParser
    )
    store = actions.add_parser(
        "store",
        prog="scrapy gp4c store",
        description="Check and copy a store.",
        usage="scrapy gp4c store ACTION SPIDER [options]",
    )
    store_actions = store.add_subparsers(
        dest="store_action", required=True, metavar="ACTION", parser_class=ScoreParser
    )
    parsers: dict[str, argparse.ArgumentParser] = {}
    for name, action in ACTIONS.items():
        of_store = name.startswith("store ")
        listed: dict[str, Any] = {"help": action.help} if of_store else {}
        added = (store_actions if of_store else actions).add_parser(
            name.removeprefix("store "),
            prog=f"scrapy gp4c {name}",
            description=action.help,
            add_help=not isinstance(action, TrainingCommand),
            **listed,
        )
        _add_action(name, action, added)
        add_global_options(added)
        parsers[name] = added
    return parsers


def _add_action(name: str, action: Action | TrainingCommand, parser: argparse.ArgumentParser) -> None:
    what = "SPIDER|HISTORY" if isinstance(action, TrainingCommand) else "SPIDER"
    count = "?" if action in (STORES, COMPLETION) or isinstance(action, TrainingCommand) else None
    parser.add_argument("spider", nargs=count, metavar=what, help="name of the spider")
    action.add_options(parser)
    parser.usage = parser.format_usage().removeprefix("usage: ").strip()  # without Scrapy's options
    parser.set_defaults(action=name)


def run_action(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action that `options` name; returns the exit code, 1 after an error, which it prints."""
    logging.getLogger("scrapy_gp4c.addon").addHandler(logging.NullHandler())  # its error is printed below
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # None: the caller closed it
    for option, setting in IN_PLACE_OF_SETTINGS.items():
        if (value := getattr(options, option, None)) is not None:
            settings.set(setting, value, "cmdline")
    try:
        action = ACTIONS[options.action]
        if isinstance(action, TrainingCommand):
            exit_code = action.run(settings, options)
        else:
            action(settings if options.spider is None else Project(settings, options.spider), options)
            exit_code = 0
        sys.stdout.flush()
        return exit_code
    except Gp4cError as error:
        print(f"scrapy gp4c {options.action}: {error}", file=sys.stderr)
    except OSError as error:
        if error.filename is not None:
            file = printable(str(error.filename))[:1_000]
            text = f"cannot use {file}: {error.strerror}. Check its owner, and the disk."
            print(f"scrapy gp4c {options.action}: {text}", file=sys.stderr)
            return 1
        if not isinstance(error, BrokenPipeError):  # `| head` has seen enough
            print(f"scrapy gp4c {options.action}: cannot write the output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end
    return 1


def overview() -> str:
    """Return the list of actions, by heading, that the help shows."""
    lines = []
    for heading, actions in GROUPS.items():
        if heading == "more":
            lines += ["more:", *wrap(", ".join(actions), 80, initial_indent="  ", subsequent_indent="  ")]
        else:
            lines += [f"{heading}:", *(f"  {name:10} {action.help}" for name, action in actions.items())]
        if heading == "care":
            lines.append(f"  {'store':10} {', '.join(STORE)}: check and copy a store")
    return "\n".join(lines)
