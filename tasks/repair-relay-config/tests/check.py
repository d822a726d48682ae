"""Compare the repaired file, as data, with what the two documents lead to."""

import sys
import tomllib
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish


def config():
    return tomllib.loads(Path("/app/config/relay.toml").read_text(encoding="utf-8"))


def exact(got, want, what):
    """Compare values and their types, so that 2500.0 and true do not pass for 2500 and 1."""
    equal(repr(got), repr(want), what)


def tables(got):
    """Sort the keys of tables: their order in the file is free, that of arrays is not."""
    if isinstance(got, dict):
        return {key: tables(got[key]) for key in sorted(got)}
    return [tables(entry) for entry in got] if isinstance(got, list) else got


@check
def file_is_toml():
    config()


@check
def only_known_top_level_keys():
    equal(sorted(config()), ["listener", "log", "name", "retry", "route", "timeout_ms", "tls", "version"], "keys")


@check
def version_name_and_timeout():
    got = config()
    exact((got["version"], got["name"], got["timeout_ms"]), (2, "relay-eu-1", 30000), "version, name, timeout_ms")


@check
def log_and_tls():
    exact(tables(config()["log"]), {"file": "/var/log/relay.log", "level": "warn"}, "log")
    exact(tables(config()["tls"]), {"certificate": "/etc/relay/tls.pem", "minimum": "TLSv1.2"}, "tls")


@check
def listeners():
    want = [
        {"address": "0.0.0.0", "name": "smtp", "port": 25, "size_limit": 10 * 1024**2},
        {"address": "::1", "name": "submission", "port": 587, "require_auth": True, "size_limit": 25 * 1024**2},
    ]
    got = config()["listener"]
    for entry in got:
        entry["address"] = entry["address"].strip("[]")
    exact(tables(got), want, "listeners")


@check
def retries():
    exact(tables(config()["retry"]), {"attempts": 5, "backoff_ms": 2500}, "retry")


@check
def routes():
    def targets(*weights):
        return [{"host": f"mx{number}.example.net", "weight": weight} for number, weight in weights]

    want = [
        {"match": "newsletter.example.org", "name": "bulk", "targets": targets((1, 70), (2, 30))},
        {"match": "*", "name": "default", "targets": targets((1, 50), (2, 30), (4, 20))},
    ]
    exact(tables(config()["route"]), want, "routes")


finish()
