"""The client of an API worker: records, reads and watches over HTTP, without Redis."""
