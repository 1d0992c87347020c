"""Small tasks of real clients, each in its own environment: `python served.py CLIENT`.

The server is the one that the variables of `abreast env` name. Each task prints what it got.
"""

# mypy: ignore-errors

import asyncio
import json
import os
import sys

CHAT, RESPONSES, CLAUDE = "gpt-x", "responses/gpt-x", "claude-x"
# A name of the settings, of which the second model answers, and the embedded one if it is there.
OTHERS = ["careful", *filter(None, [os.environ.get("EMBEDDED_MODEL")])]
WEATHER = {
    "name": "weather",
    "description": "The weather of a town.",
    "parameters": {
        "type": "object",
        "properties": {"town": {"type": "string"}},
        "required": ["town"],
        "additionalProperties": False,
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def tell(what: str, value: object) -> None:
    print(f"{what}: {json.dumps(value)}")


def openai() -> None:
    from openai import APIStatusError, OpenAI
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    client = OpenAI()
    turn = [{"role": "user", "content": "Say hello."}]
    reply = client.chat.completions.create(model=CHAT, messages=turn)
    tell("chat", [reply.choices[0].message.content, reply.usage.total_tokens])
    usage = {"include_usage": True}
    chunks = client.chat.completions.create(
        model=CHAT, messages=turn, stream=True, stream_options=usage
    )
    tell("chat stream", "".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
    tool = {"type": "function", "function": WEATHER}
    asked = [{"role": "user", "content": "Please call weather."}]
    called = client.chat.completions.create(model=CHAT, messages=asked, tools=[tool])
    call = called.choices[0].message.tool_calls[0]
    tell("tool", [call.function.name, call.function.arguments])
    answer = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    said = called.choices[0].message.model_dump(exclude_none=True)
    after = client.chat.completions.create(model=CHAT, messages=[*asked, said, answer])
    tell("after the tool", after.choices[0].message.content)
    parsed = client.chat.completions.parse(model=CHAT, messages=turn, response_format=Person)
    tell("structured", parsed.choices[0].message.parsed.model_dump())
    for model in (RESPONSES, CHAT):  # passed on, and translated to chat completions
        tell("responses", client.responses.create(model=model, input="Say hello.").output_text)
        with client.responses.stream(model=model, input="Say it again.") as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            tell("responses stream", [text, stream.get_final_response().status])
        found = client.responses.create(
            model=model, input="Please call weather.", tools=[{"type": "function", **WEATHER}]
        )
        tell("responses tool", [item.name for item in found.output if item.type == "function_call"])
        person = client.responses.parse(model=model, input="Who?", text_format=Person)
        tell("responses structured", person.output_parsed.model_dump())
    for model in OTHERS:
        short = {"model": model, "messages": turn, "max_tokens": 8, "seed": 1}
        tell(model, client.chat.completions.create(**short).choices[0].message.content)
        parts = client.chat.completions.create(**short, stream=True)
        tell("stream", "".join(c.choices[0].delta.content or "" for c in parts if c.choices))
    try:
        client.chat.completions.create(model="local/smollm2", messages=turn, n=3)
    except APIStatusError as error:
        tell("refused", [error.status_code, error.body["param"]])


def anthropic() -> None:
    from anthropic import Anthropic

    client = Anthropic()
    turn = [{"role": "user", "content": "Say hello."}]
    for model in (CLAUDE, "openai/gpt-x"):  # passed on, and translated to chat completions
        reply = client.messages.create(model=model, max_tokens=100, messages=turn)
        tell("message", [reply.content[0].text, reply.stop_reason, reply.usage.output_tokens])
        with client.messages.stream(model=model, max_tokens=100, messages=turn) as stream:
            tell("stream", "".join(stream.text_stream))
        tool = {"name": "weather", "input_schema": WEATHER["parameters"]}
        asked = [{"role": "user", "content": "Please call weather."}]
        called = client.messages.create(model=model, max_tokens=100, messages=asked, tools=[tool])
        use = called.content[-1]
        tell("tool", [use.name, use.input, called.stop_reason])
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
        turns = [
            *asked,
            {"role": "assistant", "content": [block.model_dump() for block in called.content]},
            {"role": "user", "content": [result]},
        ]
        after = client.messages.create(model=model, max_tokens=100, messages=turns, tools=[tool])
        tell("after the tool", after.content[0].type)
    for model in OTHERS:
        short = {"model": model, "max_tokens": 8, "messages": turn}
        tell(model, client.messages.create(**short).content[0].text)
        with client.messages.stream(**short) as stream:
            tell("stream", "".join(stream.text_stream))
    counted = client.messages.count_tokens(model="openai/gpt-x", messages=turn)
    tell("count", counted.input_tokens > 0)


def litellm() -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm as lite

    turn = [{"role": "user", "content": "Say hello."}]
    reply = lite.completion(model=f"openai/{CHAT}", messages=turn)
    tell("chat", reply.choices[0].message.content)
    chunks = lite.completion(model=f"openai/{CHAT}", messages=turn, stream=True)
    tell("chat stream", "".join(c.choices[0].delta.content or "" for c in chunks))
    base = os.environ["ANTHROPIC_BASE_URL"]
    message = lite.completion(model=f"anthropic/{CLAUDE}", messages=turn, api_base=base)
    tell("message", message.choices[0].message.content)
    for model in OTHERS:
        other = lite.completion(model=f"openai/{model}", messages=turn, max_tokens=8)
        tell(model, other.choices[0].message.content)


def pydantic_ai() -> None:
    from pydantic import BaseModel
    from pydantic_ai import Agent

    class Person(BaseModel):
        name: str
        age: int

    tell("text", Agent(f"openai-chat:{CHAT}").run_sync("Say hello.").output)
    person = Agent(f"openai-chat:{CHAT}", output_type=Person).run_sync("Who?").output
    tell("structured", person.model_dump())
    tell("responses", Agent(f"openai-responses:{CHAT}").run_sync("Say hello.").output)
    for model in OTHERS:
        short = {"max_tokens": 8}
        tell(model, Agent(f"openai-chat:{model}", model_settings=short).run_sync("Hi.").output)


def langchain() -> None:
    from langchain_openai import ChatOpenAI

    for name in OTHERS:
        tell(name, ChatOpenAI(model=name, max_tokens=8).invoke("Say hello.").content)
    model = ChatOpenAI(model=CHAT)
    tell("chat", model.invoke("Say hello.").content)
    tell("stream", "".join(str(chunk.content) for chunk in model.stream("Say hello.")))
    shaped = model.with_structured_output({"title": "person", **SCHEMA})
    tell("structured", shaped.invoke("Who?"))
    tool = {"type": "function", "function": WEATHER}
    called = model.bind_tools([tool]).invoke("Please call weather.")
    tell("tool", [call["name"] for call in called.tool_calls])

    async def several() -> list:
        return await model.abatch([f"Number {n}" for n in range(5)])

    tell("batch", [reply.content for reply in asyncio.run(several())])


def llm() -> None:
    import llm as simon

    model = simon.get_model("gpt-4o-mini")
    model.api_base = os.environ["OPENAI_BASE_URL"]
    model.key = os.environ["OPENAI_API_KEY"]
    tell("prompt", model.prompt("Say hello.").text())
    tell("no stream", model.prompt("Say it again.", stream=False).text())


if __name__ == "__main__":
    {
        "openai": openai,
        "anthropic": anthropic,
        "litellm": litellm,
        "pydantic-ai": pydantic_ai,
        "langchain": langchain,
        "llm": llm,
    }[sys.argv[1]]()
