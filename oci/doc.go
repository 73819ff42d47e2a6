// Package oci holds what Bulkhead knows of the OCI runtime specification: the
// specification of an ordinary container in a pod's VM, the tables of
// capabilities, system calls and paths, and reading a bundle. It knows nothing
// of the CRI or Kubernetes; package cri/spec translates from there.
//
// The pod's VM is the container's host, so the network, IPC and UTS namespaces
// are the VM's own, and no specification names a path of the real host.
// Specifications keep to runtime-spec 1.0.
package oci
