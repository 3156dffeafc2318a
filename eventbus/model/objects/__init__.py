"""The values of the other kinds: core/v1 Node and coordination/v1 Lease, the part of them that a fleet needs.

Values only, frozen all the way down, and their JSON as Go writes it. Events are `eventbus.model.event`.
"""
