// Package sandbox is one pod's virtual machine: its life cycle, what of it is
// on disk, the containers in it and their standard streams. It runs within the
// pod's shim, which is the only process that uses it for a given pod.
//
// # Protocol
//
// New starts the machine in the background at once. Create gives it its pod's
// identity (state ready); Start awaits the machine, opens the channel and
// configures the guest (running). Containers are then made with
// CreateContainer, processes in them with CreateExec, and both run with
// StartProcess. Stop ends the machine whatever state it is in (stopped), after
// which Start makes a new one. Restore is New for a machine that is running
// already, because the shim before this one died.
//
// # On disk
//
// In Options.StateDir:
//
//	config.json                    Config, written once by Create
//	state.json                     the machine's state, written here alone
//	lock                           flock(2), held for the time of one write
//	containers/<id>/config.json    a container's ContainerConfig, without its spec
//	containers/<id>/state.json     its state, and that of its exec'd processes
//	containers/<id>/log            how much of its output the log holds
//
// A file that cannot be read or is of another version is an error that
// matches atomicfile.ErrCorrupt; it is never taken for a state.
//
// All methods may be called at once from several goroutines.
package sandbox
