// Package enginev1 is the engine's service for doors in other processes. A door asks for a pod, then talks to that
// pod's shim itself (package shimv1 and containerd's Task service).
package enginev1

//go:generate sh ../../generate.sh engine.proto

// MaxRequest bounds a request in bytes: it has room for the longest specification (oci.MaxConfig) and a record. The engine
// refuses a larger one with
// InvalidArgument.
const MaxRequest = 7 << 19
