WITH worth AS (
    SELECT
        orders.id,
        substr(orders.placed_at, 1, 7) AS month,
        orders.customer_id,
        coalesce((SELECT sum(quantity * unit_cents) FROM order_lines WHERE order_id = orders.id), 0)
            - coalesce((SELECT sum(cents) FROM refunds WHERE order_id = orders.id), 0) AS cents
    FROM orders
    WHERE orders.status = 'paid'
),
by_customer AS (
    SELECT month, customers.name AS customer, sum(cents) AS cents
    FROM worth JOIN customers ON customers.id = worth.customer_id
    GROUP BY month, customers.id
),
ranked AS (
    SELECT
        month, customer, cents,
        sum(cents) OVER (PARTITION BY month) AS total,
        row_number() OVER (PARTITION BY month ORDER BY cents DESC, customer) AS place
    FROM by_customer
)
SELECT month, customer, cents AS revenue_cents, round(100.0 * cents / total, 1) AS share
FROM ranked
WHERE place = 1 AND total > 0
ORDER BY month;
