"""The wire protocol, generated from ``proto/tenure/v1`` by ``make proto``. Never edited by hand."""
