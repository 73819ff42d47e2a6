// Package layout names what a shim and its clients have to agree on: the files
// of a pod's state directory and the words of the API.
package layout

import (
	"errors"
	"os"
	"syscall"
)

// The names in $STATE/<instance>/<id>. The shim makes them, but for the
// directories of containers, which the engine makes beside them.
const (
	API     = "shim.sock"   // ttrpc: Sandbox, Task, Extension
	Files   = "files.sock"  // descriptors by name
	Stream  = "stream.sock" // byte streams by token
	Log     = "shim.log"    // the shim's stderr, bounded
	Console = "console.log" // the guest's console, bounded
	VM      = "vm"          // the machine's own directory of sockets
	Machine = "shim.json"   // what the machine is started from
	Sandbox = "state.json"  // how far it is; package sandbox's
	Lock    = "shim.lock"   // held by the one shim of the directory
)

// LogLimit is the most that Log may hold, in bytes.
const LogLimit = 256 << 10

// IsDead reports whether the error of connecting to a socket means that
// nobody serves it.
func IsDead(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// MachineName is the name of the machine of the sandbox id, as hypervisor.Options have it.
func MachineName(id string) string { return "bulkhead-" + id[:min(len(id), 12)] }
