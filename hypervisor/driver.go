package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// ErrGone is returned by the methods of a VM after its process has ended.
var ErrGone = errdefs.ErrUnavailable.WithMessage("the VM is gone")

// ErrSpent is returned by VM.Connect when all connections of Options.Connections are used up.
var ErrSpent = errors.New("no connection to the guest is left")

// Options configure the process of one VM. They change nothing that the guest can see.
type Options struct {
	// Dir is an existing directory for the VM's sockets. The caller removes it. Its path is at most MaxDir bytes long.
	Dir string
	// Name is shown in the host's list of processes: letters, digits, '-', '_' and '.' only. Adopt requires that the
	// process has this name.
	Name string
	// Start starts the process, for example in a network namespace or as another user. The process must be cmd's own. A
	// nil Start means (*exec.Cmd).Start.
	Start func(cmd *exec.Cmd) error
	// Connections is the number of connections to the guest's port that are opened before the process is read from.
	// Connect then returns these only: the caller may give up the right to create sockets. With 0, each Connect dials.
	Connections int
	// Opened, if not nil, is called when the process runs and all sockets are open, before any of them is read. If it
	// returns an error, the start fails.
	Opened func(process procid.ID) error
}

// MaxDir is the longest path of a VM's directory, in bytes. The paths of the unix sockets in it must stay below 108.
const MaxDir = 100

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$`)

// Validate returns an error that matches ErrInvalid for impossible options.
func (o Options) Validate() error {
	if !validName.MatchString(o.Name) {
		return fmt.Errorf("%w: name %q", ErrInvalid, o.Name)
	}
	if !filepath.IsAbs(o.Dir) || len(o.Dir) > MaxDir {
		return fmt.Errorf("%w: directory %q is not absolute or longer than %d bytes", ErrInvalid, o.Dir, MaxDir)
	}
	return nil
}

// Driver starts VMs. It holds no state: any process may adopt a VM from its Record.
type Driver interface {
	// Boot starts a VM from its kernel. It returns once the process runs and answers; the guest is then at its first
	// instructions. With Files.Memory set, that file is the guest's memory, shared, and the VM can be saved.
	Boot(ctx context.Context, m VMConfig, f Files, o Options) (VM, error)
	// Clone starts a VM from the saved state of the same VMConfig. It returns when the virtual CPUs run.
	Clone(ctx context.Context, m VMConfig, f Files, o Options) (VM, error)
	// Adopt takes over a VM that another process has started, after that process has closed it or died. It uses only
	// Console of f, and only Name, Connections and Opened of o. It returns ErrGone if the VM has ended. The record may
	// be false: a process without the name is an error, and is neither inspected nor signalled.
	Adopt(ctx context.Context, r Record, f Files, o Options) (VM, error)
	// End ends the VM that has its sockets in dir, even if no process has its Record: its starter may have been killed
	// before it wrote the record. End returns nil if there was no VM, or when the VM has ended and its sockets are
	// removed. It trusts only the parent of dir: it touches no other user's socket, whatever the owner of dir has put
	// there.
	End(ctx context.Context, dir string) error
	// Identity returns a name for everything that shapes a guest beside its kernel and initrd: the program and its
	// firmware, the devices, and the host's CPU where the guest sees it. VMs of different identities share no template.
	Identity(ctx context.Context, m VMConfig) (string, error)
}

// Record holds the data to adopt a VM. It is stored as JSON.
type Record struct {
	Process procid.ID `json:"process"`
	Dir     string    `json:"dir"`
	VM      VMConfig  `json:"machine"`
}

// Files are passed to a VM's process as descriptors: QEMU opens no path of the host but its own. The caller keeps them
// all. It may close Memory and State when Boot or Clone has returned, and Console when the VM is closed.
type Files struct {
	// Memory backs the guest's memory: the template's file while a template is built, a sealed memfd for a clone, nil
	// for a cold boot.
	Memory *os.File
	// State is the saved device state of a clone; nil for a cold boot. It is read by offset, so many clones can share
	// one file.
	State *os.File
	// Console receives the last ConsoleLimit bytes of the guest's console. It must be open for reading and writing.
	// With nil the console is discarded.
	Console *os.File
	// Tap is the network card of a VM with a tap (package internal/tap). With nil the VM gets a tap that leads
	// nowhere, which only root can create.
	Tap *os.File
}

// ConsoleLimit is the size of the end of a guest's console that is kept, in bytes.
const ConsoleLimit = 256 << 10
