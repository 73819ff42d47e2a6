package bootstrap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/flock"
)

// DefaultSocketDir is containerd's directory for sockets of shims, unless its configuration names another one.
const DefaultSocketDir = "/run/containerd/s"

// AddressName is the file in a bundle with the address of its front. Containerd 1.x reads it after its restart.
const AddressName = "address"

// scheme begins an address.
const scheme = "unix://"

// maxSocket is the longest path of a socket, in bytes.
const maxSocket = 106

// SocketPath returns the path of the front's socket for a group of containers. It is the same for every run with the
// same arguments, so that a pod's later containers find the front.
func SocketPath(dir string, inv Invocation, group string) (string, error) {
	if inv.Socket != "" {
		return inv.Socket, nil
	}
	if dir == "" {
		dir = DefaultSocketDir
	}
	sum := sha256.Sum256([]byte("bulkhead\x00" + inv.Address + "\x00" + inv.Namespace + "\x00" + group))
	path := filepath.Join(dir, fmt.Sprintf("%x", sum))
	if len(path) > maxSocket {
		return "", fmt.Errorf("socket %s: the path must be at most %d bytes (shorten socket_dir)", path, maxSocket)
	}
	return path, nil
}

// Address returns the address of a socket.
func Address(path string) string { return scheme + path }

// Socket is a front's socket.
type Socket struct {
	Path string
	// File listens. It is nil if a front already serves the socket.
	File *os.File
}

// Close closes a new socket and removes its file. A front that serves already keeps its socket. The context must have a
// deadline.
func (s Socket) Close(ctx context.Context) error {
	if s.File == nil {
		return nil
	}
	defer s.File.Close()
	unlock, err := lock(ctx, s.Path)
	if err != nil {
		return fmt.Errorf("remove socket %s: %w", s.Path, err)
	}
	defer unlock()
	// No program replaces the socket before it is closed, because it can be connected.
	if err := os.Remove(s.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket: %w", err)
	}
	return s.File.Close()
}

// lock excludes other processes that create or remove the socket at path. The lock's file lasts as long as the lock.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	l, err := flock.Acquire(ctx, path+".lock")
	if err != nil {
		return nil, err
	}
	return func() {
		os.Remove(path + ".lock")
		_ = l.Unlock()
	}, nil
}

// Listen creates the socket at path, or finds that a front serves it. It replaces the socket of a dead front. Calls of
// several processes take turns. The context must have a deadline.
func Listen(ctx context.Context, path string) (s Socket, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return s, fmt.Errorf("create the socket's directory: %w", err)
	}
	unlock, err := lock(ctx, path)
	if err != nil {
		return s, fmt.Errorf("create socket %s: %w", path, err)
	}
	defer unlock()
	s.Path = path
	serves, err := served(path)
	if err != nil || serves {
		return s, err
	}
	s.File, err = listen(path)
	return s, err
}

// RemoveDead removes the socket of a dead front. The address is in the bundle of a container that it had. The context must
// have a deadline.
func RemoveDead(ctx context.Context, bundle string) error {
	b, err := os.ReadFile(filepath.Join(bundle, AddressName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the socket: %w", err)
	}
	path, isSocket := strings.CutPrefix(string(b), scheme)
	if info, err := os.Lstat(path); !isSocket || err != nil || info.Mode().Type() != os.ModeSocket {
		return nil // the front removed it
	}
	unlock, err := lock(ctx, path)
	if err != nil {
		return fmt.Errorf("remove socket %s: %w", path, err)
	}
	defer unlock()
	_, err = served(path)
	return err
}

// served reports whether a front serves the socket at path, and removes the socket of a dead one.
func served(path string) (bool, error) {
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return true, nil
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("create socket %s: %w", path, err)
	}
	return false, nil
}

// listen creates a socket for root alone. The socket never has other permissions, because it gets its name last.
func listen(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("create socket %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	// The file gets the permissions of the socket's descriptor.
	err = unix.Fchmod(fd, 0o600)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, fmt.Errorf("create socket %s: %w", path, err)
	}
	return f, nil
}
