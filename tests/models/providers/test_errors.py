"""Status, headers and body go in, one typed error comes out."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import (
    CallFailed,
    KeyRefused,
    NoSuchModel,
    QuotaSpent,
    Refused,
    ReplyTimeout,
    RequestRefused,
    ServerFault,
    Throttled,
    TooLong,
    Unavailable,
)
from abreast.models.providers.errors import RAW, fault_in, fault_of, seconds_of


def fault(status, body=None, **headers):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return fault_of(
        "lane/model",
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        raw,
    )


def openai(message, kind="invalid_request_error", code=None):
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


EXCEEDED = "You exceeded your current quota, please check your plan and billing details."
RATE = "Rate limit reached for gpt-4o in organization org-x on"

SHAPES = [
    (
        400,
        openai(
            "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"
        ),
        TooLong,
    ),
    (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens",
            "code": 400,
        },
        TooLong,
    ),
    (
        400,
        openai("the request exceeds the available context size", "exceed_context_size_error"),
        TooLong,
    ),
    (400, {"message": "Prompt is too large for model with 32768 maximum context length"}, TooLong),
    (413, b"<h1>Request Entity Too Large</h1>", TooLong),
    (400, openai("The response was filtered", code="content_filter"), Refused),
    (
        400,
        openai("Your request was rejected by our safety system", code="content_policy_violation"),
        Refused,
    ),
    (
        400,
        {"error": {"message": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        Refused,
    ),
    (400, openai("Unsupported value: 'temperature'", code="unsupported_value"), RequestRefused),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, RequestRefused),
    (409, openai("conflict"), RequestRefused),
    (401, openai("Incorrect API key provided", code="invalid_api_key"), KeyRefused),
    (403, openai("Country not supported", code="unsupported_country_region_territory"), KeyRefused),
    (404, openai("The model `x` does not exist", code="model_not_found"), NoSuchModel),
    (404, {"error": 'model "llama9" not found, try pulling it first'}, NoSuchModel),
    (400, {"error": {"message": "Model Not Exist", "type": "invalid_request_error"}}, NoSuchModel),
    (
        400,
        {"object": "error", "message": "Invalid model: mistral-9", "type": "invalid_model"},
        NoSuchModel,
    ),
    (402, {"error": {"message": "Insufficient Balance"}}, QuotaSpent),
    (429, openai(EXCEEDED, "insufficient_quota", "insufficient_quota"), QuotaSpent),
    (
        429,
        openai("Billing hard limit has been reached", code="billing_hard_limit_reached"),
        QuotaSpent,
    ),
    (
        429,
        openai(f"{RATE} requests per day (RPD): Limit 200. Please try again in 7m12s.", "requests"),
        QuotaSpent,
    ),
    (
        429,
        openai(
            f"{RATE} requests per day (RPD): Limit 10000. Please try again in 8.64s.", "requests"
        ),
        Throttled,
    ),
    (
        429,
        openai(
            "Request too large for gpt-4o on tokens per min (TPM): Limit 10, Requested 20", "tokens"
        ),
        TooLong,
    ),
    (429, {"message": "Requests rate limit exceeded"}, Throttled),
    (429, b"", Throttled),
    (408, b"", ReplyTimeout),
    (500, openai("The server had an error", "server_error"), ServerFault),
    (
        503,
        {"error": {"code": 503, "message": "The model is overloaded", "status": "UNAVAILABLE"}},
        Unavailable,
    ),
    (
        529,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        Unavailable,
    ),
    (504, b"<html><head><title>504</title></head><body>upstream</body></html>", ServerFault),
    (302, b"", RequestRefused),
]


@pytest.mark.parametrize(("status", "body", "kind"), SHAPES)
def test_each_shape_is_its_error(status, body, kind):
    error = fault(status, body)
    assert type(error) is kind
    assert error.status == status
    assert str(error).startswith("lane/model ")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (kind, str(error), vars(error))


def test_the_sentence_has_the_providers_words_on_one_line_and_shortened():
    assert str(fault(400, openai("Bad\n\tthing"))) == (
        "lane/model was sent a request that its provider does not accept (400): Bad thing"
    )
    long = str(fault(500, openai("word " * 1000)))
    assert len(long) < 280
    assert long.endswith("…")
    assert (
        str(fault(502, b"<html><h1>Bad\n Gateway</h1></html>"))
        == "lane/model is not available (502): Bad Gateway"
    )
    assert str(fault(500, b"")) == "lane/model failed at its provider (500)"


def test_the_raw_text_is_kept_up_to_its_bound():
    assert fault(500, b"a" * 200_000).raw == "a" * RAW
    assert fault(500, b"\xff\xfe").details == {"status": 500, "raw": "\ufffd\ufffd"}


def test_secrets_are_taken_out_before_anything_is_cut():
    def clean(text):
        return text.replace("secret", "***")

    for body in (
        b"secret",
        b"a" * (RAW - 3) + b"secret",
        json.dumps(openai("x" * 196 + "secret")).encode(),
    ):
        error = fault_of("lane/model", 429, {}, body, clean=clean)
        assert "sec" not in str(error) + error.raw


# --- the wait

NOON = 1_763_208_000.0  # 2025-11-15T12:00:00Z


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("-3", 0.0),
        ("20ms", 0.02),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("1d", 86_400.0),
        ("2025-11-15T12:00:30Z", 30.0),
        ("2025-11-15T14:00:30.500+02:00", 30.5),
        ("2025-11-15T11:00:00Z", 0.0),
        ("Sat, 15 Nov 2025 12:01:00 GMT", 60.0),
        ("2025-11-15T12:00:30", None),  # no time zone
        ("inf", None),
        ("nan", None),
        ("", None),
        ("soon", None),
        ("6m0x", None),
        ("9" * 400 + "s", None),
        ("Thu, 01 Jan 99999999999 00:00:00 GMT", None),
    ],
)
def test_seconds_however_they_are_told(told, seconds):
    assert seconds_of(told, wall=NOON) == seconds


@given(st.text(max_size=30))
def test_seconds_of_anything_are_a_number_or_none(told):
    seconds = seconds_of(told, wall=NOON)
    assert seconds is None or seconds >= 0


def test_the_most_exact_header_counts_first():
    reset = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "6m0s"}
    said = openai("Please try again in 9s.")
    assert fault(429, said, retry_after_ms="1500", retry_after="2", **reset).retry_after == 1.5
    assert fault(429, said, retry_after="2", **reset).retry_after == 2.0
    assert fault(429, said, **reset).retry_after == 9.0
    assert fault(429, b"", **reset).retry_after == 360.0
    assert fault(429, b"", retry_after="soon").retry_after is None


def test_a_date_is_told_from_now():
    from email.utils import formatdate

    told = fault(
        429, b"", retry_after=formatdate(SYSTEM_CLOCK.wall() + 3600, usegmt=True)
    ).retry_after
    assert 0 < told <= 3600


def test_only_a_limit_with_nothing_left_tells_when_to_come_again():
    levels = {
        "x_ratelimit_remaining_requests": "12",
        "x_ratelimit_reset_requests": "9m",
        "x_ratelimit_remaining_tokens": "0",
        "x_ratelimit_reset_tokens": "3s",
    }
    error = fault(429, b"", **levels)
    assert (error.retry_after, error.limit) == (3.0, "tokens")
    assert (
        fault(429, b"", x_ratelimit_remaining_tokens="5", x_ratelimit_reset_tokens="3s").retry_after
        is None
    )
    both = levels | {"x_ratelimit_remaining_requests": "0"}
    assert (fault(429, b"", **both).retry_after, fault(429, b"", **both).limit) == (540.0, "")


def test_anthropics_levels_are_read_too():
    moment = "2999-01-01T00:00:00Z"
    error = fault(
        429,
        b"",
        anthropic_ratelimit_input_tokens_remaining="0",
        anthropic_ratelimit_input_tokens_reset=moment,
    )
    assert error.limit == "tokens"
    assert error.retry_after > 1e9


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (
            openai(f"{RATE} tokens per min (TPM): Limit 10000", "tokens", "rate_limit_exceeded"),
            "tokens",
        ),
        (
            openai(f"{RATE} requests per min (RPM): Limit 3", "requests", "rate_limit_exceeded"),
            "requests",
        ),
        (
            {
                "error": {
                    "message": "This would exceed your rate limit of 50,000 input tokens per minute"
                }
            },
            "tokens",
        ),
        (
            {"error": {"message": "Number of concurrent connections has exceeded your rate limit"}},
            "concurrency",
        ),
        (
            {
                "error": {
                    "details": [
                        {"violations": [{"quotaId": "GenerateContentInputTokensPerModelPerMinute"}]}
                    ]
                }
            },
            "tokens",
        ),
        ({"error": {"message": "slow down"}}, ""),
    ],
)
def test_the_limit_is_named_where_it_can_be_told(body, limit):
    assert fault(429, body).limit == limit


def test_a_server_that_tells_when_it_is_back_is_believed():
    assert fault(503, b"", retry_after="20").retry_after == 20.0
    assert fault(503, b"").retry_after is None
    assert pickle.loads(pickle.dumps(fault(503, b"", retry_after="20"))).retry_after == 20.0


def test_an_error_inside_a_reply_has_the_status_that_its_type_means():
    assert fault_in("lane/model", {"error": None}) is None
    assert fault_in("lane/model", {}) is None
    for kind, status in (
        ("overloaded_error", 529),
        ("rate_limit_error", 429),
        ("authentication_error", 401),
        ("?", 500),
    ):
        assert fault_in("lane/model", {"error": {"type": kind, "message": "x"}}).status == status
    assert type(fault_in("lane/model", {"error": {"code": 404}})) is NoSuchModel
    assert type(fault_in("lane/model", {"error": "boom"})) is ServerFault


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "details", "code", "type", "retryDelay", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.integers(300, 599), json_values, st.text(max_size=12))
def test_whatever_a_server_sends_is_one_typed_error_in_one_line(status, body, told):
    error = fault(
        status,
        body,
        retry_after=told,
        x_ratelimit_remaining_tokens="0",
        x_ratelimit_reset_tokens=told,
    )
    assert isinstance(error, CallFailed)
    assert len(str(error).splitlines()) == 1
    str(error).encode()
