"""Field types that the configuration tables share, and the one way a rule refuses a value."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

PhaseNetworkMode = Literal["public", "no-network", "allowlist"]


class Table(BaseModel):
    """A table of a task file: immutable, unknown keys dropped (they are reported elsewhere)."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


def rule_error(reason: str, fix: str, key: str | None = None) -> PydanticCustomError:
    """Make the error a validator raises; `key` points below the table or value being validated."""
    return PydanticCustomError("rule", "{reason}", {"reason": reason, "fix": fix, "key": key or ""})


def quoted(value: object) -> str:
    """Write a value as the user did, shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "an array"
    if value is None:
        return "empty"
    text = str(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return '"' + text.translate(_ESCAPES) + '"' if isinstance(value, str) else text


_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*range(32), 127)} | {ord('"'): '\\"', ord("\\"): "\\\\"}


def _user(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise rule_error(f"is {quoted(value)}", 'give a user name or number, for example "root"')
    return value


def _whole(value: float) -> float:
    return int(value) if value.is_integer() else value


def _text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _variables(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not name:
            raise rule_error("has a variable without a name", "name it")
        if "=" in name or "\0" in name:
            raise rule_error("cannot name a variable", "use letters, digits and _", name)
        if "\0" in text:
            raise rule_error("holds a NUL byte", "remove it", name)
    return value


_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?")


def _host(value: str) -> str:
    host = value.strip().lower()
    if _HOST.fullmatch(host) and not re.fullmatch(r"[\d.]+", host):
        return host
    try:
        if "/" in host:
            return str(ipaddress.ip_network(host, strict=True))
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    if "://" in host or ":" in host or "/" in host:
        fix = "give the host alone, without scheme, port or path, for example api.example.com"
    else:
        fix = "give a host name, *.domain, IP address or network such as 10.0.0.0/8"
    raise rule_error(f"has {quoted(value)}", fix)


_RESERVED = {"con", "prn", "aux", "nul", *(f"{p}{n}" for p in ("com", "lpt") for n in range(1, 10))}


def directory_name(value: str) -> str:
    """Return a name that is a directory on every system, or refuse it."""
    if not value or value in {".", ".."} or re.search(r'[<>:"/\\|?*\x00-\x1f\x7f]', value):
        problem = "cannot name a directory"
    elif value[-1] in " ." or value[0] == " ":
        problem = "starts or ends with a character that some systems drop"
    elif value.split(".")[0].lower() in _RESERVED:
        problem = "is a reserved device name on Windows"
    elif len(value.encode("utf-8", "surrogatepass")) > 255:
        problem = "is longer than 255 bytes"
    else:
        return value
    raise rule_error(f"{quoted(value)} {problem}", "use letters, digits, - and _")


def folded(name: str) -> str:
    """Return the form under which two directory names collide on some file system."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Megabytes = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Trials = Annotated[int, Field(ge=1, le=10_000)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Cpus = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_whole)]
User = Annotated[str | int, BeforeValidator(_user)]
Host = Annotated[str, AfterValidator(_host)]
DirectoryName = Annotated[str, AfterValidator(directory_name)]
Env = Annotated[dict[str, str], AfterValidator(_variables)]
VersionText = Annotated[str, BeforeValidator(_text)]
NonEmpty = Annotated[str, Field(min_length=1)]
