package shim

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Options describe the start of a pod's shim. The caller may close the files when Start or Adopt returns.
type Options struct {
	ID       string // the sandbox's: 64 hexadecimal digits
	Instance string // the engine that owns it

	// StateDir is $STATE/<instance>/<id>. It is created with mode 0700 and given to Owner. Its parent must exist, and
	// Owner must be able to traverse it. Its path is at most MaxStateDir bytes long, because it holds the shim's
	// sockets.
	StateDir string
	// DataDir is $DATA/sandboxes/<id>, created in the same way, for data that must survive a reboot. It may be empty.
	DataDir string

	// VM is the VM's configuration, ready for a Driver (Accel resolved). For Adopt it determines the shim's
	// confinement. Without it, Adopt trusts the stored state, which the owner can change.
	VM hypervisor.VMConfig
	// Memory is the sealed memfd and State the saved device state of the template to clone. Both are nil for a cold
	// boot.
	Memory *os.File
	State  *os.File
	// Tap is the VM's card, if it has one (hypervisor.Files).
	Tap *os.File
	// Patience is the time that a healthy clone needs for its first answer on this host at the moment, see
	// sandbox.Options; 0 is half a minute in all. Adopt ignores it.
	Patience time.Duration

	// Copy, if not nil, makes the VM as a copy of a running one, in dir, which the owner owns. The copy is paused and
	// another user's child. The shim adopts and resumes it. Its guest has the pod's scratch disk mounted. If Copy
	// fails, the shim clones. Adopt ignores it.
	Copy func(ctx context.Context, dir string) (hypervisor.Record, error)

	// Scratch and Logs, by container id, are the files that Adopt sends to the new shim. Without its log, a container's
	// output stays in the guest until ReopenLog.
	Scratch *os.File
	Logs    map[string]*os.File

	// Owner is the user of the shim and its VM; nil is the caller. Only root can choose another user.
	Owner *Owner
	// Spawn starts the shim's process, for example in the pod's network namespace; nil is (*exec.Cmd).Start.
	Spawn func(*exec.Cmd) error
	// Path is the bulkhead-shim executable.
	Path string
}

// Owner is the user and group that a shim runs as.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// MaxStateDir bounds the path of a state directory, in bytes. The path of its longest socket must fit into the 108
// bytes of a unix address.
const MaxStateDir = 92
