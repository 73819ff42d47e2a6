// Package enginev1 is the engine process's service for doors in other processes: a
// door asks for a pod machine, then talks to that pod's shim itself (package shimv1
// and containerd's Task service).
package enginev1

//go:generate sh ../../generate.sh engine.proto

// MaxRequest bounds a request, in bytes, the door's record included. A larger one is
// refused with InvalidArgument.
const MaxRequest = 1 << 20
