// Package shimv1 is the extension service of a pod's shim, in addition to containerd's Task and Sandbox services.
package shimv1

//go:generate sh ../../generate.sh extension.proto
