"""Change histories with known statistics: `python -m training.synthetic MODEL -o FILE`.

Each model is a function ``(rng, site, cycles) -> changed``: ``site`` int32 ``[P]``,
the result bool ``[cycles, P]``. `MODELS` is their table. Sites have log-normal sizes in all of them.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from training import options
from training.histories.formats import WRITERS
from training.histories.models import MODELS, generate


@options.command
def main(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.synthetic", description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--cycles", type=int, default=57)
    parser.add_argument("--seed", type=int, default=1)
    options.shared(parser.add_argument, "--output", type=str, help=f"a file named *{', *'.join(WRITERS)}")
    args: Any = parser.parse_args(arguments)
    write = options.writer_of(args.output)
    history = generate(args.model, args.pages, args.cycles, args.seed)
    write(args.output, history)
    share = history.changed.mean()
    print(f"{args.output}: {history.source}, {share:.4f} changes per page and cycle")


if __name__ == "__main__":
    sys.exit(main())
