"""Run the program against services of the verifier's own, which live in this process on loopback."""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run, succeed
from stock import make_stock


def expected(records):
    latest = {}
    for record in records:
        if record["sku"] not in latest or record["revision"] > latest[record["sku"]]["revision"]:
            latest[record["sku"]] = record
    items = [record for record in latest.values() if not record["deleted"]]
    warehouses = {}
    for item in items:
        warehouses[item["warehouse"]] = warehouses.get(item["warehouse"], 0) + item["units"]
    return {
        "items": len(items),
        "units": sum(item["units"] for item in items),
        "warehouses": warehouses,
        "low": sorted(item["sku"] for item in items if item["units"] < item["minimum"]),
    }


@contextmanager
def service(pages, busy=0, status=None):
    """Serve pages; each request is first answered `busy` times with 503, or page 2 always with `status`."""
    seen = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlsplit(self.path)
            cursor = parse_qs(url.query, keep_blank_values=True).get("cursor", [None])[0]
            number = {None: 0, **{f"&{n}+ /é=#%41": n for n in range(1, len(pages))}}.get(cursor)
            seen[cursor] = seen.get(cursor, 0) + 1
            if url.path != "/items":
                self.answer(404, {})
            elif number is None:
                self.answer(400, {"error": "bad cursor"})
            elif status and number == 1:
                self.answer(status, {"items": [], "next": None})
            elif seen[cursor] <= busy:
                self.answer(503, {"error": "busy", "retry_after_ms": 5})
            else:
                following = f"&{number + 1}+ /é=#%41" if number + 1 < len(pages) else None
                self.answer(200, {"items": pages[number], "next": following})

        def answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def report(url):
    return json.loads(succeed("python3", "/app/report.py", url))


def paged(records, size):
    return [records[start : start + size] for start in range(0, len(records), size)]


@check
def report_of_the_running_service():
    equal(
        json.loads(Path("/app/report.json").read_text(encoding="utf-8")), expected(make_stock(2024, 60)), "report.json"
    )


@check
def all_pages_are_read():
    records = make_stock(77, 90)
    with service(paged(records, 7)) as (url, _):
        equal(report(url), expected(records), "report")


@check
def empty_pages_do_not_end_the_list():
    records = make_stock(3, 12)
    with service([[], records[:5], [], records[5:], []]) as (url, _):
        equal(report(url), expected(records), "report")


@check
def empty_stock():
    with service([[]]) as (url, _):
        equal(report(url), {"items": 0, "units": 0, "warehouses": {}, "low": []}, "report")


@check
def latest_revision_decides():
    base = {"sku": "X-1", "warehouse": "Porto", "units": 3, "minimum": 4, "deleted": False}
    gone = base | {"sku": "X-2", "revision": 10, "deleted": True}
    pages = [
        [base | {"revision": 9, "units": 8}, gone],
        [base | {"revision": 10}],
        [base | {"revision": 2}, gone | {"revision": 9, "deleted": False}],
    ]
    with service(pages) as (url, _):
        equal(report(url), {"items": 1, "units": 3, "warehouses": {"Porto": 3}, "low": ["X-1"]}, "report")


@check
def busy_answers_are_retried():
    records = make_stock(5, 20)
    with service(paged(records, 10), busy=9) as (url, _):
        equal(report(url), expected(records), "report")


@check
def ten_busy_answers_are_the_end():
    with service([[], []], busy=10) as (url, seen):
        done = run("python3", "/app/report.py", url)
        equal((done.returncode, done.stdout, bool(done.stderr)), (1, "", True), "status, output and message")
        equal(seen, {None: 10}, "requests")


@check
def other_failures_are_reported():
    for status in (500, 404):
        with service([make_stock(5, 4), []], status=status) as (url, _):
            done = run("python3", "/app/report.py", url)
            equal((done.returncode, done.stdout, bool(done.stderr)), (1, "", True), f"result after status {status}")
    done = run("python3", "/app/report.py", url)
    equal((done.returncode, done.stdout, bool(done.stderr)), (1, "", True), "result with no service")


finish()
