"""The command line of the storm: `python -m abreast.testing.storm --rpm 600`."""

import argparse
import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, asdict, fields
from typing import Any, NoReturn

from abreast.testing.storm.faults import BATCH_FAULTS, FAULTS
from abreast.testing.storm.open import open_storm
from abreast.testing.storm.settings import Settings, SettingsStep, from_json, make_settings

_USAGE_ERROR = 2
_SPECIAL_SETTINGS = (
    "faults",
    "fault_at",
    "batch_faults",
    "batch_fault_at",
    "steps",
    "markers",
    "retry_after",
)
_EXAMPLES = """\
examples:
  python -m abreast.testing.storm --rpm 600 --concurrency 40 --latency 0.5
  python -m abreast.testing.storm --rpm 600 --step 60:rpm=150 --step 120:rpm=900 --minute 3
  python -m abreast.testing.storm --fault 500=0.01 --fault-at 3=stall --headers absent
  python -m abreast.testing.storm --strict anthropic-new

paths: /v1/chat/completions, /v1/messages, /v1beta/models/MODEL:generateContent
(and :streamGenerateContent), /v1/models; batches at /v1/files and /v1/batches,
/v1/messages/batches, /v1beta/models/MODEL:batchGenerateContent and /v1beta/batches;
the truth is at /storm/log, /storm/batches and /storm/stats,
and settings change by POST to /storm/settings

faults, each also asked for by fault-NAME in a model's name or a prompt
(fault-NAMEx2: only the first two times):
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a storm until it is interrupted; return the exit code."""
    options = _make_parser().parse_args(arguments)
    try:
        settings = make_settings(_settings_from(options))
    except ValueError as error:
        return _report_error(str(error))
    try:
        return asyncio.run(_serve(settings, options))
    except OSError as error:
        return _report_error(
            f"can't listen on 127.0.0.1:{options.port}: {os.strerror(error.errno or 0)}", code=1
        )


def _report_error(sentence: str, code: int = _USAGE_ERROR) -> int:
    sys.stderr.write(f"storm: {sentence}\n")
    return code


# --- options


class _Parser(argparse.ArgumentParser):
    """Reports an error in one sentence, without the list of all options."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(_report_error(message.removeprefix("argument ")))


def _make_parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {fault.name:<17} {fault.doc}" for fault in FAULTS.values())
    faults += "\n\nfaults of a batch:\n"
    faults += "\n".join(f"  {name:<17} {doc}" for name, doc in BATCH_FAULTS.items())
    parser = _Parser(
        usage="python -m abreast.testing.storm [options]",
        prog="python -m abreast.testing.storm",
        description=(
            "A model provider on 127.0.0.1 with exact limits, faults on demand, "
            "and a log of the truth."
        ),
        epilog=_EXAMPLES + faults,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--port", type=_port, default=0, help="the port to listen on (one that is free)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (0)")
    parser.add_argument(
        "--json", action="store_true", help="say where it listens as one line of JSON"
    )
    parser.add_argument("--until-eof", action="store_true", help="end when the standard input does")
    for each in fields(Settings):
        if each.name not in _SPECIAL_SETTINGS:
            parser.add_argument("--" + each.name.replace("_", "-"), **_argument(each))
    _add_special_arguments(parser)
    return parser


def _add_special_arguments(parser: argparse.ArgumentParser) -> None:
    docs = {each.name: each.metadata["doc"] for each in fields(Settings)}
    parser.add_argument("--retry-after", type=_value, metavar="HOW", help=docs["retry_after"])
    parser.add_argument(
        "--no-markers",
        dest="markers",
        action="store_false",
        default=None,
        help="obey no fault-NAME",
    )
    parser.add_argument(
        "--fault", type=_rate, action="append", metavar="NAME=RATE", help=docs["faults"]
    )
    parser.add_argument(
        "--fault-at", type=_nth, action="append", metavar="N=NAME", help=docs["fault_at"]
    )
    parser.add_argument(
        "--batch-fault",
        type=_rate,
        action="append",
        metavar="NAME=RATE",
        help=docs["batch_faults"],
    )
    parser.add_argument(
        "--batch-fault-at",
        type=_nth,
        action="append",
        metavar="N=NAME",
        help=docs["batch_fault_at"],
    )
    parser.add_argument(
        "--step", type=_step, action="append", metavar="SECONDS:NAME=VALUE,...", help=docs["steps"]
    )
    parser.add_argument(
        "--settings", type=_object, default={}, metavar="JSON", help="settings as an object of JSON"
    )


def _argument(each: Field[Any]) -> dict[str, Any]:
    default = None if each.default is MISSING else each.default
    doc = each.metadata["doc"] + (
        "" if default is None else f" ({default:g})" if default != str(default) else ""
    )
    if isinstance(default, str):
        return {"help": f"{doc} ({default})", "metavar": "HOW"}
    whole = isinstance(default, int) or each.name == "concurrency"
    return {"type": _whole if whole else _number, "help": doc, "metavar": "N"}


def _settings_from(options: argparse.Namespace) -> dict[str, Any]:
    given = {each.name: getattr(options, each.name, None) for each in fields(Settings)}
    given["faults"] = dict(options.fault) if options.fault else None
    given["fault_at"] = dict(options.fault_at) if options.fault_at else None
    given["batch_faults"] = dict(options.batch_fault) if options.batch_fault else None
    given["batch_fault_at"] = dict(options.batch_fault_at) if options.batch_fault_at else None
    given["steps"] = tuple(options.step) if options.step else None
    return from_json(
        options.settings | {name: value for name, value in given.items() if value is not None}
    )


def _port(text: str) -> int:
    port = _whole(text)
    if not 0 <= port <= 65535:  # noqa: PLR2004 - the highest port number
        raise argparse.ArgumentTypeError(f"a port is from 0 to 65535, not {text}")
    return port


def _number(text: str, kind: type[float] = float) -> float:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"a {what} is needed, not {text!r}") from None


def _whole(text: str) -> int:
    return int(_number(text, int))


def _rate(text: str) -> tuple[str, float]:
    name, _, rate = text.partition("=")
    return name, _number(rate)


def _nth(text: str) -> tuple[int, str]:
    number, _, name = text.partition("=")
    return _whole(number), name


def _step(text: str) -> SettingsStep:
    at, _, changes = text.partition(":")
    pairs = [pair.partition("=") for pair in changes.split(",")]
    try:
        return SettingsStep.of(
            (_number(at), {name.replace("-", "_"): _value(value) for name, _, value in pairs})
        )
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _object(text: str) -> dict[str, Any]:
    value = _value(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("the settings are an object of JSON")
    return value


# --- serving


async def _serve(settings: Settings, options: argparse.Namespace) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    given = {each.name: getattr(settings, each.name) for each in fields(Settings)}
    async with open_storm(seed=options.seed, port=options.port, **given) as storm:
        # The log only grows: repeated garbage collections of it would take half of the CPU time.
        gc.freeze()
        gc.set_threshold(100_000, 50, 1000)
        facts = {"url": storm.url, "pid": os.getpid()}
        said = json.dumps(facts) if options.json else f"storm: listening on {storm.url}"
        sys.stdout.write(said + "\n")
        sys.stdout.flush()
        if options.until_eof:
            _watch_input(ended)
        await ended.wait()
        if not options.json:
            counts = asdict(storm.stats()).items()
            words = [f"{value} {name.replace('_', ' ')}" for name, value in counts if value]
            sys.stderr.write(f"storm: {', '.join(words)}\n")
    return 0


def _watch_input(ended: asyncio.Event) -> None:
    try:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _read_input, ended)
    except PermissionError:  # a file or /dev/null, which never reaches its end by being closed
        ended.set()


def _read_input(ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        ended.set()


if __name__ == "__main__":
    sys.exit(main())
