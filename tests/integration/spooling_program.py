"""A program with a spool: records numbered events about several objects, says so, and waits to be killed."""

from __future__ import annotations

import sys

from eventbus.record.broadcaster import EventBroadcaster


def main(count: int) -> None:
    broadcaster = EventBroadcaster()
    recorder = broadcaster.new_recorder("c")
    for i in range(count):
        pod = {"kind": "Pod", "metadata": {"namespace": "d", "name": f"web-{i % 7}"}}
        recorder.event(pod, "Normal", "Counted", str(i))
    print("recorded", flush=True)
    if sys.stdin.readline().strip() == "end":
        print(broadcaster.shutdown(), dict(broadcaster.losses.counts), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
