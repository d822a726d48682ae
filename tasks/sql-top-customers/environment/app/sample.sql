INSERT INTO customers VALUES (1, 'Aldi'), (2, 'Brandt'), (3, 'Cohen');

INSERT INTO orders VALUES
    (1, 1, '2024-01-05 10:00:00', 'paid'),
    (2, 2, '2024-01-09 11:30:00', 'paid'),
    (3, 3, '2024-01-20 09:15:00', 'cancelled'),
    (4, 2, '2024-02-02 16:45:00', 'paid'),
    (5, 3, '2024-02-14 12:00:00', 'paid');

INSERT INTO order_lines VALUES
    (1, 2, 1500), (1, 1, 900),
    (2, 1, 4000),
    (3, 9, 9900),
    (4, 3, 1000),
    (5, 1, 7000);

INSERT INTO refunds VALUES (2, '2024-02-01 08:00:00', 500), (5, '2024-02-20 08:00:00', 4500);
