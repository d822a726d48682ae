CREATE TABLE loans (
    id         INTEGER PRIMARY KEY,
    title      TEXT NOT NULL,
    author     TEXT NOT NULL,
    borrower   TEXT NOT NULL,
    email      TEXT,
    lent_on    TEXT NOT NULL,
    returned_on TEXT
);
PRAGMA user_version = 1;

INSERT INTO loans VALUES
    (1, 'The Dispossessed', 'Ursula K. Le Guin', 'Nora', 'nora@example.org', '2024-01-03', '2024-01-20'),
    (2, 'Solaris', 'Stanisław Lem', 'Ivo', 'ivo@example.org', '2024-01-05', NULL),
    (3, 'The Dispossessed', 'Ursula K. Le Guin', 'Ivo', 'IVO@example.org', '2024-02-01', '2024-02-11'),
    (5, 'Ubik', 'Philip K. Dick', 'Nora B.', 'Nora@Example.org', '2024-02-15', NULL);
