"""Match invoices with payments."""
