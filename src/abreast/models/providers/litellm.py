"""Models of all other providers by litellm (extra `litellm`), as `litellm/PROVIDER/MODEL`."""

import os
from typing import Any

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    KeyRefused,
    ModelUnknown,
    NoSuchModel,
    Refused,
    ReplyTimeout,
    RequestRefused,
    ServerFault,
    Throttled,
    TooLong,
    Unavailable,
)
from abreast.core.outcome import Usage
from abreast.models.chat_form import content_form, present, tools_form
from abreast.models.port import Finish, OnText, Reply, Request, ToolCall
from abreast.models.providers.thinking import output_bound
from abreast.models.schema import parse

_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


class LiteLLM:
    """A model behind litellm, whose own retries are off."""

    def __init__(self, name: str) -> None:
        """`name` is `litellm/PROVIDER/MODEL`; litellm finds the keys itself."""
        # Without this, the import fetches prices from the network.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        try:
            import litellm  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise ModelUnknown(f"{name} needs litellm: pip install 'abreast[litellm]'") from None
        self.name = name
        self._model = name.partition("/")[2]
        self._litellm: Any = litellm
        # Without this, it prints advice to stdout, among the results, with each error.
        litellm.suppress_debug_info = True

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer once; `hear` gets the text at its end. Cancelling closes the connection."""
        began = SYSTEM_CLOCK.now()
        try:
            body = self._body(request)
        except ValueError as error:
            raise RequestRefused(f"{self.name} can't be sent this request: {error}") from None
        try:
            found = await self._litellm.acompletion(**body)
        except Exception as error:
            raise self._fault(error) from error
        reply = self._reply(found, request, SYSTEM_CLOCK.now() - began)
        if hear is not None:
            hear(reply.text)
        return reply

    async def close(self) -> None:
        """Do nothing: litellm manages its connections."""

    def _body(self, request: Request) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        turns = [
            {"role": each.role, "content": content_form(each) if each.files else each.content}
            for each in request.messages
        ]
        form = None
        if request.schema is not None:
            shape = {"name": "reply", "schema": dict(request.schema), "strict": False}
            form = {"type": "json_schema", "json_schema": shape}
        return {
            "model": self._model,
            "messages": system + turns,
            "num_retries": 0,
            "max_retries": 0,
            **present(
                temperature=request.temperature,
                seed=request.seed,
                max_tokens=output_bound(request),
                reasoning_effort=request.reasoning,
                stop=list(request.stop) or None,
                response_format=form,
                tools=tools_form(request),
            ),
            **request.extra,
        }

    def _reply(self, found: Any, request: Request, seconds: float) -> Reply:  # noqa: ANN401 - litellm has no types
        choice, used = found.choices[0], found.usage
        text = choice.message.content or ""
        calls = tuple(
            ToolCall(call.id, call.function.name, call.function.arguments)
            for call in getattr(choice.message, "tool_calls", None) or ()
        )
        value = parse(text, request.schema) if request.schema is not None and not calls else None
        usage = Usage(1, used.prompt_tokens, used.completion_tokens, None)
        finish = _FINISH.get(choice.finish_reason, "other")
        return Reply(
            text, value, calls, usage, finish, str(found.model or ""), str(found.id or ""), seconds
        )

    def _fault(self, error: Exception) -> CallFailed:
        kinds: dict[str, type[CallFailed]] = {
            "RateLimitError": Throttled,
            "AuthenticationError": KeyRefused,
            "PermissionDeniedError": KeyRefused,
            "NotFoundError": NoSuchModel,
            "ContextWindowExceededError": TooLong,
            "Timeout": ReplyTimeout,
            "ContentPolicyViolationError": Refused,
            "APIConnectionError": ConnectionLost,
            "InternalServerError": ServerFault,
            "ServiceUnavailableError": Unavailable,
            "BadGatewayError": Unavailable,
        }
        kind = kinds.get(type(error).__name__, RequestRefused)
        message = " ".join(str(error).split())[:200]
        return kind(f"{self.name}: {message}", status=getattr(error, "status_code", None))
