"""Report the stock of a service: report.py BASE_URL."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

ATTEMPTS = 10
OPENER = build_opener(ProxyHandler({}))


def get(url: str) -> dict:
    """Fetch a page, waiting while the service is busy."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with OPENER.open(url, timeout=30) as response:
                if response.status != 200:
                    sys.exit(f"{url}: status {response.status}")
                return json.load(response)
        except HTTPError as error:
            if error.code != 503 or attempt == ATTEMPTS:
                sys.exit(f"{url}: {error}")
            time.sleep(json.load(error)["retry_after_ms"] / 1000)
        except OSError as error:
            sys.exit(f"{url}: {error}")
    raise AssertionError("unreachable")


def records(base: str) -> Iterator[dict]:
    cursor = None
    while True:
        query = "" if cursor is None else "?" + urlencode({"cursor": cursor})
        page = get(f"{base.rstrip('/')}/items{query}")
        yield from page["items"]
        cursor = page["next"]
        if cursor is None:
            return


def main(base: str) -> None:
    latest: dict[str, dict] = {}
    for record in records(base):
        known = latest.setdefault(record["sku"], record)
        if record["revision"] > known["revision"]:
            latest[record["sku"]] = record
    items = [record for record in latest.values() if not record["deleted"]]
    warehouses: Counter[str] = Counter()
    for item in items:
        warehouses[item["warehouse"]] += item["units"]
    report = {
        "items": len(items),
        "units": warehouses.total(),
        "warehouses": warehouses,
        "low": sorted(item["sku"] for item in items if item["units"] < item["minimum"]),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main(sys.argv[1])
