"""The journal on disk: the Store port, its adapters, the codec and the commit writer."""
