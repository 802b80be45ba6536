#!/usr/bin/env python3
"""The official OpenAI client against `bifrost-gateway --demo`, told where it is by OPENAI_BASE_URL alone; and the curl
line that the gateway prints.

    python3 gateway/tests/e2e/openai_client.py

The client comes from PyPI, in the version below, into an environment of its own under target/, which is kept.
"""

import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import venv

from gateway import ROOT, Gateway, add_arguments, clean_environment, wait_until
from suite import run

VERSION = "3.57.0"
HOME = ROOT / "target" / f"e2e-openai-{VERSION}"

MODEL = "demo/gpt-4o-mini"
HELLO = [{"role": "user", "content": "Hello"}]


def go_home():
    """Goes on as the Python that has the client, which is made where it is missing."""
    python = HOME / "bin" / "python"
    done = HOME / "complete"
    if not done.exists():
        venv.create(HOME, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"openai=={VERSION}"], check=True)
        done.touch()
    if pathlib.Path(sys.prefix) != HOME:
        sys.stdout.flush()
        os.execv(python, [python, *sys.argv])


def a_chat_is_answered(client, _):
    answer = client.chat.completions.create(model=MODEL, messages=HELLO)
    assert answer.object == "chat.completion", answer
    assert answer.choices[0].message.role == "assistant", answer
    assert answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason == "stop", answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer


def an_answer_carries_the_id_that_the_client_shows(client, _):
    answer = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, extra_headers={"x-request-id": "from-the-client"}
    )
    assert answer.headers["x-request-id"] == "from-the-client", answer.headers
    assert answer.parse()._request_id == "from-the-client"
    assert client.chat.completions.create(model=MODEL, messages=HELLO)._request_id


def a_bare_name_is_enough_where_one_provider_serves_it(client, _):
    assert client.chat.completions.create(model="gpt-4o-mini", messages=HELLO).choices[0].message.content


def a_stream_comes_in_chunks_and_ends(client, _):
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert len(texts) > 1, chunks
    assert reasons == ["stop"], reasons
    assert chunks[-1].usage.completion_tokens > 0, chunks[-1]
    assert all(chunk.usage is None for chunk in chunks[:-1]), chunks


def the_clients_own_accumulator_takes_a_stream(client, _):
    with client.chat.completions.stream(model=MODEL, messages=HELLO) as stream:
        kinds = {event.type for event in stream}
        whole = stream.get_final_completion()
    assert "content.delta" in kinds and "content.done" in kinds, kinds
    assert whole.choices[0].message.content, whole


def models_are_listed_and_found_by_an_id_with_a_slash(client, _):
    ids = [model.id for model in client.models.list()]
    assert MODEL in ids, ids
    model = client.models.retrieve(MODEL)
    assert (model.id, model.owned_by) == (MODEL, "demo"), model


def an_unknown_model_is_not_found(_, gateway):
    # By itself the demo's provider has no list of models and takes any.
    with Gateway(gateway.bin_dir, "--demo", environment={"BIFROST_PROVIDERS__DEMO__MODELS": "gpt-4o-mini"}) as other:
        client = openai.OpenAI(base_url=other.url)
        for ask in (
            lambda: client.chat.completions.create(model="demo/nothing", messages=HELLO),
            lambda: client.models.retrieve("demo/nothing"),
        ):
            error = raised(openai.NotFoundError, ask)
            assert "the model `demo/nothing` does not exist here" in error.message, error.message
            assert (error.code, error.param, error.type) == ("model_not_found", "model", "invalid_request_error")
        assert client.chat.completions.create(model=MODEL, messages=HELLO).choices


def a_bad_body_is_a_bad_request(client, _):
    error = raised(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages="Hello"))
    assert (error.code, error.type) == ("invalid_request", "invalid_request_error"), error.body
    assert "messages" in error.message, error.message
    error = raised(openai.BadRequestError, lambda: client.post("/chat/completions", cast_to=object, content=b"{"))
    assert error.code == "invalid_request", error.body


def an_unknown_path_is_not_found(client, _):
    error = raised(openai.NotFoundError, lambda: client.post("/nothing", cast_to=object, body={}))
    assert error.code == "not_found", error.body


def the_async_client_asks_many_things_at_once(_, gateway):
    async def ask():
        async with openai.AsyncOpenAI() as client:
            plain = [client.chat.completions.create(model=MODEL, messages=HELLO) for _ in range(50)]
            answers = await asyncio.gather(*plain, *[read(client) for _ in range(10)])
            assert all(answers), answers

    async def read(client):
        stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        return [chunk async for chunk in stream]

    asyncio.run(ask())
    assert gateway.process.poll() is None


def a_stream_that_is_closed_early_is_counted_as_cancelled(client, gateway):
    before = gateway.figures()["counters"]["cancelled"]
    with client.chat.completions.create(model=MODEL, messages=HELLO, stream=True) as stream:
        next(stream)
    counters = wait_until("cancelled request", lambda: cancelled(gateway, before + 1))
    assert counters["started"] == counters["records"], counters
    assert client.chat.completions.create(model=MODEL, messages=HELLO).choices


def cancelled(gateway, count):
    """The counters, once so many requests were cancelled and all are over."""
    figures = gateway.figures()
    done = figures["counters"]["cancelled"] == count and figures["gauges"]["in_flight"] == 0
    return figures["counters"] if done else None


def the_curl_line_that_is_printed_is_answered(_, gateway):
    answer = json.loads(bash(printed_curl(gateway)))
    assert answer["object"] == "chat.completion", answer
    assert answer["choices"][0]["message"]["content"], answer
    assert bash(f"{printed_curl(gateway)} --output /dev/null --write-out '%{{http_code}}'") == "200"


def the_curl_line_with_stream_gives_chunks_and_one_done(_, gateway):
    line = printed_curl(gateway)
    streaming = line.replace('{"model"', '{"stream": true,"model"')
    assert streaming != line, line
    events = [event for event in bash(streaming).split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events), events
    assert events.count("data: [DONE]") == 1 and events[-1] == "data: [DONE]", events
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert len(chunks) > 1 and all(chunk["object"] == "chat.completion.chunk" for chunk in chunks), chunks


def printed_curl(gateway):
    """The command that the gateway prints, with its line breaks, as a user would paste it."""
    lines = gateway.out().splitlines()
    first = next(number for number, line in enumerate(lines) if line.lstrip().startswith("curl "))
    last = next(number for number in range(first, len(lines)) if not lines[number].endswith("\\"))
    return "\n".join(lines[first : last + 1])


def bash(line):
    """What the line prints."""
    done = subprocess.run(
        ["bash", "-c", line], check=False, env=clean_environment(), capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done
    return done.stdout


def raised(kind, ask):
    """The error of that kind that asking raises."""
    try:
        answer = ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {answer}")


CHECKS = [
    a_chat_is_answered,
    an_answer_carries_the_id_that_the_client_shows,
    a_bare_name_is_enough_where_one_provider_serves_it,
    a_stream_comes_in_chunks_and_ends,
    the_clients_own_accumulator_takes_a_stream,
    models_are_listed_and_found_by_an_id_with_a_slash,
    an_unknown_model_is_not_found,
    a_bad_body_is_a_bad_request,
    an_unknown_path_is_not_found,
    the_async_client_asks_many_things_at_once,
    a_stream_that_is_closed_early_is_counted_as_cancelled,
    the_curl_line_that_is_printed_is_answered,
    the_curl_line_with_stream_gives_chunks_and_one_done,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    args = parser.parse_args()
    with Gateway(args.bin_dir, "--demo") as gateway:
        environment = clean_environment(OPENAI_BASE_URL=gateway.url, OPENAI_API_KEY="anything")
        os.environ.clear()
        os.environ.update(environment)
        return run(CHECKS, openai.OpenAI(), gateway)


if __name__ == "__main__":
    go_home()
    import openai

    sys.exit(main())
