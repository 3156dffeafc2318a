"""Decides which kinds a user may read: Pods, ConfigMaps and Secrets belong to the role operator alone."""

from __future__ import annotations

from typing import Any

from eventbus.broker.keys import OPERATED
from eventbus.errors import BusRefused
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import ListOptions
from eventbus.store.object_store import AnyStore


def may_read(store: AnyStore, kind: Kind[Any], namespace: str = "") -> bool:
    """Return False if *kind* is one of the operator's and this user lacks that role in *namespace*, "": in all.

    Lists one object of such a kind; for other kinds it sends nothing. The events about such objects can be read by
    everyone who may read events.
    Raises: BusUnavailable.
    """
    if kind.plural not in OPERATED:
        return True
    try:
        store.objects(kind).list(ListOptions(namespace=namespace, limit=1))
    except BusRefused:
        return False
    return True
