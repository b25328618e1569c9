"""Work that a server does behind requests: a queue of jobs, and documents that users send."""
