"""Finds the service of batches of a model."""

from __future__ import annotations

from abreast.models.batch.service import BatchService
from abreast.models.port import Model


def find_service(model: Model) -> BatchService | None:
    """The batches of a model's provider; None if it has none that are known here."""
    from abreast.models.batch.anthropic import AnthropicBatches
    from abreast.models.batch.gemini import GeminiBatches
    from abreast.models.batch.openai import OpenAIBatches
    from abreast.models.providers.anthropic import Anthropic
    from abreast.models.providers.gemini import Gemini
    from abreast.models.providers.openai import OpenAI
    from abreast.models.providers.responses import OpenAIResponses

    match model:
        case OpenAI() | OpenAIResponses():
            return OpenAIBatches(model)
        case Anthropic():
            return AnthropicBatches(model)
        case Gemini():
            return GeminiBatches(model)
        case _:
            return None
