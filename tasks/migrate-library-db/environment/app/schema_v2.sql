CREATE TABLE authors (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE books (
    id        INTEGER PRIMARY KEY,
    title     TEXT NOT NULL,
    author_id INTEGER NOT NULL REFERENCES authors (id),
    UNIQUE (title, author_id)
);

CREATE TABLE borrowers (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE  -- lower case
);

CREATE TABLE loans (
    id          INTEGER PRIMARY KEY,
    book_id     INTEGER NOT NULL REFERENCES books (id),
    borrower_id INTEGER NOT NULL REFERENCES borrowers (id),
    lent_on     TEXT NOT NULL,
    returned_on TEXT,
    CHECK (returned_on IS NULL OR returned_on >= lent_on)
);

CREATE INDEX loans_open ON loans (borrower_id) WHERE returned_on IS NULL;
