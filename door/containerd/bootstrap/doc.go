// Package bootstrap is the side of the shim protocol that containerd drives by running the shim's program: its flags,
// its standard input and its answer on standard output.
//
// Containerd runs the program in the directory of the bundle, with the action start or delete. Start leaves a process
// behind that serves the shim API, and prints the address of its socket. The form of the answer depends on containerd's
// version:
//
//	1.6, 1.7     the address alone
//	2.0 to 2.2   JSON with the version of the API, the address and the protocol
//	2.3 and up   the protobuf message BootstrapResult, for a BootstrapParams on standard input
//
// No single version of containerd's package pkg/shim serves all of them, so this package replaces it.
package bootstrap
