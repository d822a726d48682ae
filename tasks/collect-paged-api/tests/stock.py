"""The stock of the demonstration warehouse, made from a seed so that it is the same everywhere."""


def numbers(seed):
    """Yield an endless, reproducible series of numbers."""
    while True:
        seed = (seed * 1103515245 + 12345) % 2**31
        yield seed >> 8


def make_stock(seed, count):
    """Return records as the service sends them: some twice in different revisions, some deleted."""
    series = numbers(seed)
    records = []
    for number in range(count):
        record = {
            "sku": f"{'ABCDEF'[next(series) % 6]}-{number:04}",
            "revision": 1,
            "warehouse": ["Łódź", "Porto", "Ghent"][next(series) % 3],
            "units": next(series) % 40,
            "minimum": 5 + next(series) % 10,
            "deleted": next(series) % 9 == 0,
        }
        records.append(record)
        if next(series) % 4 == 0:
            newer = record | {"revision": 2 + next(series) % 9, "units": next(series) % 40}
            newer["deleted"] = next(series) % 5 == 0
            place = next(series) % len(records)
            records.insert(place, newer)
    return records
