"""The requests of the OpenAI protocol that are understood, and what is refused with a reason."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

MAX_TOKENS = 4096
MAX_STOPS = 8
MAX_INPUTS = 64


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError("half of a surrogate pair is no text") from e
    return text


Text = Annotated[str, AfterValidator(_unicode)]
Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
StopText = Annotated[Text, Field(min_length=1, max_length=256)]


class _Request(BaseModel):
    """``strict``: a number in quotes is no number. Unknown fields are refused: a typo must not be ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: Text
    user: str | None = None
    cache_salt: Annotated[Text, Field(max_length=256)] = ""


class _Generation(_Request):
    """What completions and chat share.

    ``temperature`` defaults to 0 (greedy), not to 1: the same request gives the same answer unless asked otherwise.
    ``cache_salt`` keeps the prefix cache of one tenant apart from all others.
    """

    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    n: Literal[1] = 1
    stream: bool = False
    stream_options: dict[str, bool] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    presence_penalty: Annotated[float, Field(ge=0.0, le=0.0)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=0.0, le=0.0)] = 0.0
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    metadata: dict[str, Any] | None = None

    @field_validator("temperature", "top_p", "seed", "n", "stream", mode="before")
    @classmethod
    def _null_is_default(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value

    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def wants_usage(self) -> bool:
        return bool((self.stream_options or {}).get("include_usage"))


class CompletionRequest(_Generation):
    """POST /v1/completions. ``prompt`` is a text, token ids, or a list of either (one choice each)."""

    prompt: Text | Ids | Annotated[list[Text] | list[Ids], Field(min_length=1, max_length=MAX_INPUTS)]
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = 16
    best_of: Literal[1] | None = None
    echo: Literal[False] = False
    logprobs: None = None
    suffix: None = None

    @field_validator("max_tokens", mode="before")
    @classmethod
    def _max_tokens(cls, value: Any) -> Any:
        return 16 if value is None else value


class TextPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text"]
    text: Text


class ChatMessage(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    name: str | None = None

    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(p.text for p in self.content)


class ChatRequest(_Generation):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1024)]
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    logprobs: Literal[False] | None = None
    response_format: dict[Literal["type"], Literal["text"]] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None

    def limit(self) -> int:
        return self.max_completion_tokens or self.max_tokens or 256


class EmbeddingRequest(_Request):
    """POST /v1/embeddings."""

    input: Text | Ids | Annotated[list[Text] | list[Ids], Field(min_length=1, max_length=MAX_INPUTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: None = None

    @model_validator(mode="after")
    def _not_empty(self) -> EmbeddingRequest:
        if self.input == "":
            raise ValueError("input must not be empty")
        return self


def inputs(value: str | list[int] | list[str] | list[list[int]]) -> list[str | list[int]]:
    """One entry a sequence, whichever of the four forms the client chose."""
    if isinstance(value, str):
        return [value]
    if value and isinstance(value[0], int):
        return [[i for i in value if isinstance(i, int)]]
    return [v for v in value if isinstance(v, str | list)]
