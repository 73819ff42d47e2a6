// Package surrogate is the small host process that stands for a process in a VM: the pid that a container's client
// knows. It holds the process's standard streams and connects them to the pod's shim (package shim/hostio). Its end ends
// the process in the VM, and it exits as that process did.
//
// A door starts it in the container's namespaces and cgroup, and gives it orders over a socket. It also holds the
// descriptors that the engine needs for the container. Many surrogates run at once, so the package is small.
package surrogate
