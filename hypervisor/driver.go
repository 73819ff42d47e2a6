package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// ErrGone is returned by the methods of a VM whose process has ended.
var ErrGone = errors.New("the VM is gone")

// ErrSpent is returned by VM.Connect when it has no connection left and may make
// none.
var ErrSpent = errors.New("no connection to the guest is left")

// Options say how one machine's process is run. They shape nothing that its
// guest can see.
type Options struct {
	// Dir is an existing directory for the machine's sockets, which the
	// caller removes. Its path is at most MaxDir bytes long.
	Dir string
	// Name is shown in the host's list of processes: letters, digits, '-',
	// '_' and '.' only. The process of a machine that is adopted has to bear it.
	Name string
	// Start starts the process, in a network namespace or as another user for
	// example; nil is (*exec.Cmd).Start. The process it starts is cmd's.
	Start func(cmd *exec.Cmd) error
	// Connections is how many connections to the guest's port are opened before
	// the process can say anything, for a caller that gives up the right to make
	// sockets; Connect hands them out. With 0 Connect makes one when it is asked.
	Connections int
	// Opened, if not nil, is called once the process runs and all sockets are
	// open, before anything is read from one. Its error ends the start.
	Opened func(process procid.ID) error
}

// MaxDir bounds the path of a machine's directory, in bytes: a unix socket's
// path in it has to stay below 108.
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

// Driver starts machines. It holds no state: any process may adopt a machine
// from its Record.
type Driver interface {
	// Boot starts a machine from its kernel. It returns once the process
	// runs and answers; the guest is then at its first instructions. With
	// Files.Memory set, the guest's memory is that file, shared, so that the
	// machine can be saved.
	Boot(ctx context.Context, m VMConfig, f Files, o Options) (VM, error)
	// Clone starts a machine from a saved one of the same VMConfig, and
	// returns when its virtual CPUs run.
	Clone(ctx context.Context, m VMConfig, f Files, o Options) (VM, error)
	// Adopt takes over a machine that another process has started and let go
	// of, or that outlived it. Of f only Console is used, of o only Name,
	// Connections and Opened. It returns ErrGone for a machine that is no more.
	// The record may be a lie: a process that does not bear the name is an error,
	// and is neither looked into nor signalled.
	Adopt(ctx context.Context, r Record, f Files, o Options) (VM, error)
	// End ends the machine whose sockets lie in dir, whether or not anyone
	// holds its Record: the process that started it may have been killed
	// before it could write that down. It returns when the machine has ended,
	// nil if there was none, and removes the sockets. Of dir only the parent is
	// believed: nobody else's socket is touched, whatever the owner of that has
	// put there.
	End(ctx context.Context, dir string) error
	// Identity names all that shapes a guest beside the contents of its
	// kernel and initrd: the program and its firmware, the devices, the
	// host's CPU where the guest sees it. Machines of two identities share no
	// template.
	Identity(ctx context.Context, m VMConfig) (string, error)
}

// Record is what a machine is adopted from; it is stored as JSON.
type Record struct {
	Process procid.ID `json:"process"`
	Dir     string    `json:"dir"`
	Machine VMConfig  `json:"machine"`
}

// Files are what a machine's process is given by descriptor: QEMU opens no
// path of the host but its own. The caller keeps them all and may close
// Memory and State when Boot or Clone has returned; Console is the VM's until
// it is closed.
type Files struct {
	// Memory backs the guest's memory: the template's file while a template
	// is made, a sealed memfd for a clone, nil for a cold boot.
	Memory *os.File
	// State is the saved device state of a clone; nil for a cold boot. It is
	// read by offset, so that one file serves any number of clones at once.
	State *os.File
	// Console receives the guest's console, of which the last ConsoleLimit
	// bytes are kept; nil throws it away. It is open for reading and writing.
	Console *os.File
	// Tap is the network card of a machine of NetworkTap (package internal/tap). With nil it
	// has one that leads nowhere, which only root can make.
	Tap *os.File
}

// ConsoleLimit is the most of a guest's console that is kept, in bytes.
const ConsoleLimit = 256 << 10
