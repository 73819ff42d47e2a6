// Package sandbox runs one pod's VM: its life cycle, its state on disk, the containers in it and their standard
// streams. It runs within the pod's shim, which is the only process that uses it for a given pod.
//
// # Protocol
//
// New starts the VM in the background at once. Create gives the VM its pod's identity (state ready). Start waits for
// the VM, opens the channel and configures the guest (running). CreateContainer then creates containers, CreateExec
// creates processes in them, and StartProcess runs both. Stop kills the VM in any state (stopped); after that, Start
// can start a new one. Restore replaces New if the VM is running already because the previous shim died.
//
// # On disk
//
// In Options.StateDir:
//
//	config.json                    Config, written once by Create
//	state.json                     the VM's state, written by this package alone
//	lock                           flock(2), held during each write
//	containers/<id>/config.json    a container's ContainerConfig, without its spec
//	containers/<id>/state.json     its state, and the states of its exec'd processes
//	containers/<id>/log            how much of its output the log holds
//
// A file that cannot be read or has another version is an error that matches atomicfile.ErrCorrupt. It never counts as
// a state.
//
// All methods are safe for concurrent use.
package sandbox
