// Package oci implements Bulkhead's part of the OCI runtime specification. It has the specification of an ordinary
// container in a pod's VM, the tables of capabilities, system calls and paths, and the parsing of bundles. Package
// oci/convert converts bundles of other clients. Package oci does not depend on the CRI or Kubernetes; package cri/spec
// translates from there.
//
// For a container, the pod's VM is the host. So the network, IPC and UTS namespaces are the VM's own, and no
// specification contains a path of the real host. Specifications keep to runtime-spec 1.0.
package oci
