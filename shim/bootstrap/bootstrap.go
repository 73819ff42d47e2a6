// Package bootstrap exchanges one message between an engine and the shim that it has just started: the engine sends the
// configuration with open files, and the shim answers.
package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
)

// FD is the shim's descriptor of the socket.
const FD = 3

// Version is the version of the message. Engine and shim are installed together, so a shim refuses all other versions.
const Version = 1

// maxMessage bounds a message, in bytes. A socket's buffer always has room for it.
const maxMessage = 64 << 10

// The names of files in a message. A log's name is LogPrefix plus the id of its container.
const (
	Memory    = "memory"
	State     = "state"
	Tap       = "tap"
	Kernel    = "kernel"
	Initrd    = "initrd"
	Scratch   = "scratch"
	LogPrefix = "log:"
)

// ErrVersion is returned for a message of another version.
var ErrVersion = errors.New("the engine and the shim have different versions")

// Message is a shim's configuration.
type Message struct {
	Version  int                 `json:"version"`
	ID       string              `json:"id"`
	Instance string              `json:"instance"`
	StateDir string              `json:"stateDir"`
	DataDir  string              `json:"dataDir,omitempty"`
	VM       hypervisor.VMConfig `json:"machine"`
	Adopt    bool                `json:"adopt,omitempty"` // adopt the sandbox in StateDir
	Files    []string            `json:"files,omitempty"` // the names of the files, in order
	// Patience is sandbox.Options.Patience for a clone.
	Patience time.Duration `json:"patience,omitempty"`

	// Copy is a paused VM that was copied for the shim.
	Copy *hypervisor.Record `json:"copy,omitempty"`

	// Clone is set by the shim itself.
	Clone bool `json:"-"`
}

// Reply is the shim's answer: Error is empty once it serves.
type Reply struct {
	Error string `json:"error,omitempty"`
}

// Pair creates the two ends of a bootstrap socket. The caller closes both. The far end becomes the shim's descriptor
// FD.
func Pair() (near *net.UnixConn, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create a socket pair: %w", err)
	}
	far = os.NewFile(uintptr(fds[1]), "bootstrap")
	near, err = Conn(os.NewFile(uintptr(fds[0]), "bootstrap"))
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	return near, far, nil
}

// Conn converts a socket's file to a connection, and closes the file.
func Conn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open the bootstrap socket: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("open the bootstrap socket: unexpected type %T", conn)
	}
	return unixConn, nil
}

// Send sends m with files by name, without the nil ones. The caller keeps the files.
func Send(conn *net.UnixConn, m Message, files map[string]*os.File) error {
	m.Version = Version
	var open []*os.File
	for name, f := range files {
		if f != nil {
			m.Files = append(m.Files, name)
			open = append(open, f)
		}
	}
	b, err := json.Marshal(m)
	if err == nil && len(b) > maxMessage {
		err = fmt.Errorf("%d bytes: must be at most %d", len(b), maxMessage)
	}
	if err == nil {
		err = fdpass.Send(conn, b, open...)
	}
	if err != nil {
		return fmt.Errorf("send the bootstrap message: %w", err)
	}
	return nil
}

// Receive returns the message and its files by name, which the caller closes.
func Receive(conn *net.UnixConn) (Message, map[string]*os.File, error) {
	var m Message
	buf := make([]byte, maxMessage)
	n, files, err := fdpass.Receive(conn, buf)
	if err == nil {
		err = json.Unmarshal(buf[:n], &m)
	}
	if err == nil && m.Version != Version {
		err = fmt.Errorf("%w: message %d, shim %d", ErrVersion, m.Version, Version)
	}
	if err == nil && len(files) != len(m.Files) {
		err = fmt.Errorf("%d files with %d names", len(files), len(m.Files))
	}
	if err != nil {
		fdpass.CloseAll(files)
		return Message{}, nil, fmt.Errorf("receive the bootstrap message: %w", err)
	}
	named := make(map[string]*os.File, len(files))
	for i, f := range files {
		if old := named[m.Files[i]]; old != nil {
			old.Close()
		}
		named[m.Files[i]] = f
	}
	return m, named, nil
}

// Answer sends the shim's reply; nil means that the shim serves.
func Answer(conn *net.UnixConn, failure error) error {
	var r Reply
	if failure != nil {
		text := failure.Error()
		r.Error = text[:min(len(text), maxMessage/8)]
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		return fmt.Errorf("answer the bootstrap message: %w", err)
	}
	return nil
}

// Await reads the reply. io.EOF means that the shim ended without one.
func Await(conn *net.UnixConn) (Reply, error) {
	var r Reply
	buf := make([]byte, maxMessage)
	n, err := conn.Read(buf)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(buf[:n], &r)
}
