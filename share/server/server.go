// Package server is the process that answers the file requests of a pod's guest for directories of the host.
//
// It reads a hostile guest's messages, so it has few rights: no network, and no files but the shared ones, in a mount
// namespace of its own. Under root it runs as a user of the pod's own, with the capabilities for the files' owners and
// modes. It is confined by Landlock and a list of system calls.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/share/fsys"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// Main runs a server as the engine starts it. owner is the user that it becomes, or "" to keep its user. User 0 is the
// root of a user namespace of the server's own. It returns nil
// when the VM has ended, or an error.
func Main(ctx context.Context, owner string) error {
	if err := awaitByte(os.Stdin); err != nil {
		return err
	}
	s, err := prepare(owner)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return err
	}
	defer s.files.Close()
	if _, err := fmt.Fprintln(os.Stdout, share.Ready); err != nil {
		return err
	}
	os.Stdout.Close()
	if err := awaitByte(os.Stdin); err != nil {
		return err
	}
	os.Stdin.Close()
	if err := s.files.findAll(); err != nil {
		return err
	}
	return s.serve(ctx)
}

// awaitByte waits for a byte from the engine. The first means that this process is on record, the second that the
// directories are mounted.
func awaitByte(in io.Reader) error {
	_, err := io.ReadFull(in, make([]byte, 1))
	if err != nil {
		return fmt.Errorf("the engine has ended: %w", err)
	}
	return nil
}

type server struct {
	port  net.Conn
	ring  []byte // nil for none
	files *roots
}

// prepare opens the server's files, and drops all other rights.
func prepare(owner string) (*server, error) {
	uid := -1
	if owner != "" {
		n, err := strconv.ParseUint(owner, 10, 31)
		if initial, ownErr := userns.Initial(); err != nil || ownErr != nil || n == 0 && initial {
			return nil, fmt.Errorf("user %.32q: %w", owner, errors.Join(err, ownErr, unix.EINVAL))
		}
		uid = int(n)
	}
	if err := closeInherited(); err != nil {
		return nil, err
	}
	s, err := inherit()
	if err != nil {
		return nil, err
	}
	proc, err := openDescriptors()
	if err != nil {
		return nil, err
	}
	// Its program may have come as a descriptor, but the engine recognises it by its name.
	if err := os.WriteFile("/proc/self/comm", []byte(share.Program), 0); err != nil {
		return nil, err
	}
	// If the pod's memory is short, the kernel kills this process and not the VM.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return nil, err
	}
	if err := enterRoot(); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	dir, err := os.OpenFile(share.Dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := limit(); err != nil {
		return nil, err
	}
	options := fsys.Options{ProcSelfFD: proc, Waiters: waiters, Handles: uint64(rand.Uint32()) << 31}
	if uid < 0 {
		options.Owner = &fsys.Owner{}
	}
	if err := becomeServer(uid); err != nil {
		return nil, err
	}
	files, err := fsys.New(options)
	if err != nil {
		return nil, err
	}
	if err := wallIn(share.Dir); err != nil {
		return nil, err
	}
	s.files = newRoots(files, dir)
	return s, nil
}

// inherit returns a server with the port and the ring that this process has inherited, and without files.
func inherit() (*server, error) {
	f := os.NewFile(share.PortFD, "port")
	defer f.Close()
	port, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("the guest's port: %w", err)
	}
	ring, err := mapRing()
	if err != nil {
		return nil, err
	}
	return &server{port: port, ring: ring}, nil
}

// mapRing maps the memory for large answers, if this process has one. Its descriptor stays open: the engine's successor
// takes it from here.
func mapRing() ([]byte, error) {
	if share.CheckRing(share.RingFD) != nil {
		return nil, nil //nolint:nilerr // the port alone works as well
	}
	unix.CloseOnExec(share.RingFD)
	mem, err := unix.Mmap(share.RingFD, 0, share.RingSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory for answers: %w", err)
	}
	return mem, nil
}

// serve answers the guest until the VM closes its port.
func (s *server) serve(ctx context.Context) error {
	host, err := wire.Greet(ctx, s.port)
	if err != nil {
		return err
	}
	defer host.Close()
	if s.ring != nil {
		if err := host.Offer(s.ring); err != nil {
			return err
		}
	}
	return answer(host, s.files)
}
