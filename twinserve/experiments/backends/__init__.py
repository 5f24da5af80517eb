"""An experiment on either backend: where engine, requests and cost model are put together."""
