CREATE TABLE customers (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE orders (
    id          INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    placed_at   TEXT NOT NULL,  -- 2024-03-09 14:05:00
    status      TEXT NOT NULL CHECK (status IN ('paid', 'cancelled'))
);

CREATE TABLE order_lines (
    order_id   INTEGER NOT NULL REFERENCES orders (id),
    quantity   INTEGER NOT NULL,
    unit_cents INTEGER NOT NULL
);

CREATE TABLE refunds (
    order_id    INTEGER NOT NULL REFERENCES orders (id),
    refunded_at TEXT NOT NULL,
    cents       INTEGER NOT NULL
);
