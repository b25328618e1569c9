"""Published methods as flows, one paper a file: `from spolia.flows.corag import corag`; `spolia flows` lists them."""
