"""`abreast matrix init`: writes a small example study."""

from pathlib import Path
from typing import Final

from abreast.cli.errors import UsageError, os_error_text, tell

_STUDY: Final = """\
# A study: every model answers every input by every strategy.
# Run it with: abreast matrix run {file}
matrix:
  models: [local/smollm2]
  strategies:
    plain:
      prompt: "What is the capital of {{{{ input.country }}}}? Answer with its name only."
      max_tokens: 8
      temperature: 0
    polite:
      prompt: "Please, tell me the name of the capital of \
{{{{ input.country }}}}, and nothing else."
      max_tokens: 8
      temperature: 0
  inputs: {data}
  scores: [contains]
  controls: [empty, truth]
"""
_INPUTS: Final = """\
{"id": "fr", "country": "France", "truth": "Paris"}
{"id": "it", "country": "Italy", "truth": "Rome"}
{"id": "jp", "country": "Japan", "truth": "Tokyo"}
{"id": "eg", "country": "Egypt", "truth": "Cairo"}
{"id": "pe", "country": "Peru", "truth": "Lima"}
"""


def write_study(file: str) -> int:
    """Write a study and its inputs; raises `UsageError` if one of the files exists."""
    path = Path(file)
    data = path.with_name(f"{path.stem}-inputs.jsonl")
    for one, text in ((path, _STUDY.format(file=file, data=data.name)), (data, _INPUTS)):
        try:
            with one.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            raise UsageError(f"{one} is there already; name another file, or remove it") from None
        except OSError as error:
            raise UsageError(f"{one} can't be written: {os_error_text(error)}", 1) from None
    tell(f"wrote {path} and {data}; run it with: abreast matrix run {path}")
    return 0
