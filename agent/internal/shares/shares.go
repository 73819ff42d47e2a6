// Package shares mounts the host's shared directories in the guest: one file system of FUSE,
// whose top has an entry for each of them.
package shares

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// Forwarder is the name of the process that passes FUSE's messages on. It is one of its own:
// Go has the kernel watch what it opens, of FUSE's files too, and who forwards must never wait
// for itself.
const Forwarder = "bulkhead-share"

// dir is where the file system is mounted.
const dir = "/run/bulkhead/shares"

// The forwarder's descriptors.
const (
	portFD = 3
	fuseFD = 4
)

// Shares is the file system, which is mounted when it is first asked for.
type Shares struct {
	mu      sync.Mutex
	mounted bool
}

// At is where the shared directory of that name is, which is its own to check: the host says
// of one that it does not share that it is not there, and a host that does not say anything is ErrSilent.
func (s *Shares) At(r *reaper.Reaper, port, name string) (string, error) {
	if err := s.mount(r, port); err != nil {
		return "", fmt.Errorf("mount the host's directories: %w", err)
	}
	at := filepath.Join(dir, name)
	return at, look(at, patience)
}

// ErrSilent is matched where the host does not answer.
var ErrSilent = errors.New("the host does not answer")

// patience is how long the host has to answer: longer than its engine waits for another server.
const patience = 30 * time.Second

// look asks whether there is something. An asker that gets no answer is left to wait for it in the
// kernel, and holds nobody else up.
func look(at string, patience time.Duration) error {
	said := make(chan error, 1)
	go func() {
		var st unix.Stat_t
		said <- unix.Lstat(at, &st)
	}()
	err := ErrSilent
	select {
	case err = <-said:
	case <-time.After(patience):
	}
	if err != nil {
		return fmt.Errorf("directory of the host: %w", err)
	}
	return nil
}

// mount mounts the file system if it is not.
func (s *Shares) mount(r *reaper.Reaper, port string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mounted {
		return nil
	}
	err := mount(r, port)
	s.mounted = err == nil
	return err
}

// mount mounts the file system and starts its forwarder.
func mount(r *reaper.Reaper, port string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ports, err := unix.Open(port, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", port, err)
	}
	defer unix.Close(ports)
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	defer unix.Close(fuse)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read=%d", fuse, wire.MaxData)
	// Before the first read of it, which fails else.
	if err := unix.Mount("bulkhead", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return err
	}
	_, err = r.Start("/proc/self/exe", []string{Forwarder}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GODEBUG=asyncpreemptoff=1"}, // type raw
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(ports), uintptr(fuse)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	return err
}

// Forward is the whole life of the forwarder. It returns only with an error.
func Forward() error {
	debug.SetGCPercent(-1) // type raw
	return wire.Forward(raw(portFD), raw(fuseFD))
}
