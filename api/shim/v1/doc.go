// Package shimv1 is the extension service of a pod's shim: what containerd's
// Task and Sandbox services lack.
package shimv1

//go:generate sh ../../generate.sh extension.proto
