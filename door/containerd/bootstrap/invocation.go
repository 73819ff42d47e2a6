package bootstrap

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
)

// Action is the job of one run of the program.
type Action string

// The actions. The program runs itself with Serve.
const (
	Serve  Action = ""
	Start  Action = "start"
	Delete Action = "delete"
)

// Invocation holds the arguments of one run.
type Invocation struct {
	Action    Action
	Namespace string // of containerd
	ID        string // of the container or sandbox
	Address   string // of containerd's gRPC socket
	Publish   string // containerd's program, which can publish events
	Bundle    string // the bundle's directory, only for Delete; empty means the working directory
	Socket    string // the path of the socket to serve; empty means the one of the group
	Debug     bool   // log more
	Version   bool   // print the version and end
	Info      bool   // print a RuntimeInfo and end
}

// ErrUsage is returned for arguments that containerd never gives.
var ErrUsage = errors.New("invalid arguments")

// identifier is containerd's rule for ids and namespaces, which it checks as well.
var identifier = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

// longestID is containerd's bound of an id, in bytes.
const longestID = 76

// ValidID reports whether containerd could have given id to a container, an exec or a namespace. Such an id is also a valid
// name of a file.
func ValidID(id string) bool { return len(id) <= longestID && identifier.MatchString(id) }

// Parse parses arguments without the program's name. The error matches ErrUsage.
func Parse(args []string) (Invocation, error) {
	var inv Invocation
	flags := flag.NewFlagSet("containerd-shim-bulkhead-v2", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&inv.Namespace, "namespace", "", "")
	flags.StringVar(&inv.ID, "id", "", "")
	flags.StringVar(&inv.Address, "address", "", "")
	flags.StringVar(&inv.Publish, "publish-binary", "", "")
	flags.StringVar(&inv.Bundle, "bundle", "", "")
	flags.StringVar(&inv.Socket, "socket", "", "")
	flags.String("debug-socket", "", "") // a profiler's socket, which the front lacks
	flags.BoolVar(&inv.Debug, "debug", false, "")
	flags.BoolVar(&inv.Version, "v", false, "")
	flags.BoolVar(&inv.Version, "version", false, "")
	flags.BoolVar(&inv.Info, "info", false, "")
	if err := flags.Parse(args); err != nil {
		return inv, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	inv.Action = Action(flags.Arg(0))
	if inv.Version || inv.Info {
		return inv, nil
	}
	return inv, inv.check()
}

func (inv Invocation) check() error {
	switch inv.Action {
	case Serve, Start, Delete:
	default:
		return fmt.Errorf("%w: unknown action %.40q", ErrUsage, inv.Action)
	}
	for name, value := range map[string]string{"namespace": inv.Namespace, "id": inv.ID} {
		if !ValidID(value) {
			return fmt.Errorf("%w: -%s %.80q must be 1 to %d letters, digits, '.', '_' or '-'", ErrUsage, name, value, longestID)
		}
	}
	return nil
}

// Args returns the arguments that start a front for the same containerd.
func (inv Invocation) Args() []string {
	args := []string{"-namespace", inv.Namespace, "-id", inv.ID, "-address", inv.Address, "-publish-binary", inv.Publish}
	if inv.Socket != "" {
		args = append(args, "-socket", inv.Socket)
	}
	if inv.Debug {
		args = append(args, "-debug")
	}
	return args
}
