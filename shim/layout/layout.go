// Package layout defines the names that a shim shares with its clients: the files of a pod's state directory and the
// strings of the API.
package layout

import (
	"errors"
	"os"
	"syscall"

	"github.com/bulkhead-project/bulkhead/shim/hostio"
)

// The names in $STATE/<instance>/<id>. The shim creates these files. The engine creates the containers' directories
// beside them.
const (
	API      = "shim.sock"   // ttrpc: Sandbox, Task, Extension
	Files    = "files.sock"  // descriptors by name
	Stream   = "stream.sock" // byte streams by token
	Host     = hostio.Name   // surrogates with their files (package hostio)
	Log      = "shim.log"    // the shim's stderr, bounded
	Console  = "console.log" // the guest's console, bounded
	VM       = "vm"          // the VM's own directory of sockets
	VMConfig = "shim.json"   // the VM's configuration
	Sandbox  = "state.json"  // the VM's state, written by package sandbox
	Lock     = "shim.lock"   // held by the one shim of the directory
)

// LogLimit is the maximum size of Log, in bytes.
const LogLimit = 256 << 10

// IsDead reports whether the error of connecting to a socket means that no process serves it.
func IsDead(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// VMName returns the name of a sandbox's VM for hypervisor.Options.
func VMName(id string) string { return "bulkhead-" + id[:min(len(id), 12)] }
