"""Whether a model policy can work: what its server says, or what its folder holds, and what to do if it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.api.config import Resolved

PATIENCE_S = 5.0
MODELS_NAMED = 5


def check_policy(resolved: Resolved) -> str:
    """Make the policy of the settings, and ask its model's server for its models.

    Raises:
        InvalidRequest: there is no such policy.
        RuntimeError: its server does not answer as it should; the message says what to do.
    """
    settings = resolved.settings
    choice = settings.policy_choice()
    choice.engine_profile(choice.make(settings.model_api_key))
    kind, _, rest = settings.policy.partition(":")
    if kind not in ("chat", "tokens"):
        return settings.policy
    model, _, place = rest.partition("@")
    key = None if settings.model_api_key is None else settings.model_api_key.get_secret_value()
    start = f"`vllm serve {model or 'MODEL'}`" + (" or `ollama serve`" if kind == "chat" else "")
    return f"{settings.policy}; {_ask(model, place or settings.model_url, key, resolved, start)}"


def _ask(model: str, url: str | None, key: str | None, resolved: Resolved, start: str) -> str:
    import httpx

    from thresher.engine.policies.model.settings import DEFAULT_URL, checked_url

    base = checked_url(url or DEFAULT_URL)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        response = httpx.get(f"{base}/models", headers=headers, timeout=PATIENCE_S)
    except httpx.HTTPError as error:
        raise RuntimeError(
            f"no model server answers at {base} ({str(error) or type(error).__name__}): start one, for example "
            f"{start}, or name another with --model-url"
        ) from None
    if response.status_code in (401, 403):
        said = "wants a key" if key is None else f"refuses the key from {resolved.origins['model_api_key']}"
        raise RuntimeError(f"the model server at {base} {said}: set THRESHER_MODEL_API_KEY")
    if response.status_code == 404:
        raise RuntimeError(f"{base} has no list of models: a model URL usually ends in /v1")
    names = _names(response) if response.is_success else None
    if names is None:
        raise RuntimeError(
            f"{base}/models answers {response.status_code}, which is no list of models: see the server's log, or name "
            "another server with --model-url"
        )
    if model not in names and not any(name.split(":")[0] == model for name in names):  # Ollama adds :latest
        has = ", ".join(names[:MODELS_NAMED]) or "none"
        raise RuntimeError(f"the model server at {base} has no model {model!r}, it has {has}: name one of its models")
    return f"the server at {base} answers and has the model"


def _names(response: Any) -> list[str] | None:
    try:
        return [str(model["id"]) for model in response.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return None
