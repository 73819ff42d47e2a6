// Package oci runs the containers of OCI bundles in VMs. bulkhead-oci is its command line for podman and docker, and
// containerd's shim uses it too. It has the place of runc's library.
//
// A Door keeps one record for each container, as runc does, in Options.Root. The pods and containers belong to the
// user's engine (api/engine/v1). Each container and each exec has a surrogate on the host (package surrogate), which is
// the process that the client knows.
package oci
