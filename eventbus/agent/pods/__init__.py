"""The pods of this machine, as the kubelet keeps them: wanted pods, their workers, their statuses and events."""
