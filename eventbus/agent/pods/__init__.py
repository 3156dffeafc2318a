"""The pods of this machine, as the kubelet keeps them: which there should be, a worker each, what is told of them."""
