"""The read path, client-go's tools/cache: a local, indexed copy of the store's objects, with handlers for changes.

It does not use Redis: all objects come from an `eventbus.model.list_watch.ListerWatcher`.
"""
