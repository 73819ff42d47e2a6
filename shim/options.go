package shim

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Options say how a pod's shim is started. Start and Adopt keep none of the
// files: the caller may close them as soon as either returns.
type Options struct {
	ID       string // of the sandbox: 64 hexadecimal digits
	Instance string // the engine that owns it

	// StateDir is $STATE/<instance>/<id>. It is made, mode 0700, and given to
	// Owner; its parent exists and can be traversed by Owner. It holds the
	// shim's sockets, so its path is at most MaxStateDir bytes long.
	StateDir string
	// DataDir is $DATA/sandboxes/<id>, made likewise: what must survive a
	// reboot. Empty for none.
	DataDir string

	// Machine is what to start, ready for a Driver (Accel resolved). For Adopt
	// it says how the shim is confined; without one the state, which the owner
	// can change, is believed.
	Machine hypervisor.VMConfig
	// Memory is the sealed memfd and State the saved device state of the
	// template to clone; both nil mean a cold boot.
	Memory *os.File
	State  *os.File
	// Tap is the card of a machine that has one (hypervisor.Files).
	Tap *os.File
	// Patience is what a healthy clone's first answer may take on this host now,
	// see sandbox.Options; 0 is half a minute in all. Adopt does not use it.
	Patience time.Duration

	// Copy, if not nil, makes the machine as a copy of one that runs, in dir, which is
	// the owner's: the copy stands still, is another user's child, and goes on when the
	// shim has taken it over. Its guest has the pod's scratch disk mounted. When Copy fails, the shim clones. Adopt does not use it.
	Copy func(ctx context.Context, dir string) (hypervisor.Record, error)

	// Scratch and Logs, by container id, are what Adopt gives the new shim
	// again. A container whose log is missing keeps its output in the guest
	// until ReopenLog.
	Scratch *os.File
	Logs    map[string]*os.File

	// Owner is whom the shim and its machine run as; nil is the caller. Only
	// root can name another.
	Owner *Owner
	// Spawn starts the shim's process, in the pod's network namespace for
	// example; nil is (*exec.Cmd).Start.
	Spawn func(*exec.Cmd) error
	// Path is the bulkhead-shim executable.
	Path string
}

// Owner is the user and group that a shim runs as.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// MaxStateDir bounds the path of a state directory, in bytes: the longest
// socket name below it still has to fit into the 108 bytes of a unix address.
const MaxStateDir = 92
