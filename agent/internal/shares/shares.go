// Package shares mounts the host's shared directories in the guest. It uses one FUSE file system with one entry per
// directory at its top.
package shares

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// Forwarder is the name of the process that forwards FUSE's messages. It is a separate process because Go polls the
// files that it opens, including those on FUSE, and the forwarder must never wait for itself.
const Forwarder = "bulkhead-share"

// dir is the file system's mount point.
const dir = "/run/bulkhead/shares"

// The forwarder's descriptors.
const (
	portFD = 3
	fuseFD = 4
	ringFD = 5 // the disk with large answers, or /dev/null
)

// Shares is the file system. It is mounted at the first use.
type Shares struct {
	mu        sync.Mutex
	forwarder *reaper.Child // nil if the file system is not mounted
	ahead     bool          // the read-ahead is set
}

// At returns the path of the shared directory of that name, which the caller has checked. A directory that the host
// does not share does not exist. A host that does not answer is ErrSilent. ring is the disk with large answers, or
// empty.
func (s *Shares) At(r *reaper.Reaper, port, ring, name string) (string, error) {
	if err := s.mount(r, port, ring); err != nil {
		return "", fmt.Errorf("mount the host's directories: %w", err)
	}
	at := filepath.Join(dir, name)
	device, err := device(at, patience)
	if err != nil {
		return at, err
	}
	return at, s.readAhead(device)
}

// ErrSilent is matched if the host does not answer.
var ErrSilent = errors.New("the host does not answer")

// patience bounds the wait for the host's answer. It is longer than the engine's wait for a new share server.
const patience = 30 * time.Second

// device returns the device of the file at a path, if it exists. A call without an answer stays blocked in the kernel,
// and blocks no one else.
func device(at string, patience time.Duration) (device uint64, err error) {
	type answer struct {
		device uint64
		err    error
	}
	said := make(chan answer, 1)
	go func() {
		var st unix.Stat_t
		err := unix.Lstat(at, &st)
		said <- answer{st.Dev, err}
	}()
	got := answer{err: ErrSilent}
	select {
	case got = <-said:
	case <-time.After(patience):
	}
	if got.err != nil {
		return 0, fmt.Errorf("directory of the host: %w", got.err)
	}
	return got.device, nil
}

// mount mounts the file system once.
func (s *Shares) mount(r *reaper.Reaper, port, ring string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forwarder != nil {
		return nil
	}
	forwarder, err := mount(r, port, ring)
	s.forwarder, s.ahead = forwarder, ring == ""
	return err
}

// Unmount unmounts the file system, if it is mounted, and returns when its forwarder has ended. It fails while a file is
// in use.
func (s *Shares) Unmount(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forwarder == nil {
		return nil
	}
	if err := unix.Unmount(dir, 0); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: an earlier call unmounted it
		return err
	}
	select {
	case <-s.forwarder.Done():
	case <-ctx.Done():
		return fmt.Errorf("wait for the forwarder's end: %w", ctx.Err())
	}
	s.forwarder = nil
	return nil
}

// mount mounts the file system and starts its forwarder.
func mount(r *reaper.Reaper, port, ring string) (*reaper.Child, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := unix.Open(port, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", port, err)
	}
	defer unix.Close(ports)
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	defer unix.Close(fuse)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(null)
	disk, err := openRing(ring)
	if err != nil {
		return nil, err
	}
	defer unix.Close(disk)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read=%d", fuse, wire.MaxData)
	// Mount before the forwarder's first read of /dev/fuse, which would fail otherwise.
	if err := unix.Mount("bulkhead", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, err
	}
	forwarder, err := r.Start("/proc/self/exe", []string{Forwarder}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GODEBUG=asyncpreemptoff=1"}, // type raw
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(ports), uintptr(fuse), uintptr(disk)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	return forwarder, err
}

// openRing opens the disk with large answers, bypassing the kernel's cache, or /dev/null without one.
func openRing(ring string) (int, error) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	if ring == "" {
		ring = os.DevNull
	} else {
		flags |= unix.O_DIRECT
	}
	fd, err := unix.Open(ring, flags, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", ring, err)
	}
	return fd, nil
}

// ahead is the read-ahead, in KiB, if answers may be large. The kernel's default of 128 would take eight round trips
// for the same data.
const ahead = wire.MaxData >> 10

// readAhead sets the kernel's read-ahead, once. The file system has exchanged its first message with the host by now,
// which would reset it.
func (s *Shares) readAhead(device uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead {
		return nil
	}
	bdi := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(device), unix.Minor(device))
	if err := os.WriteFile(bdi, strconv.AppendInt(nil, ahead, 10), 0); err != nil {
		return fmt.Errorf("read ahead: %w", err)
	}
	s.ahead = true
	return nil
}

// Forward runs the forwarder. It returns only with an error.
func Forward() error {
	debug.SetGCPercent(-1) // type raw
	return wire.Forward(raw(portFD), raw(fuseFD), raw(ringFD))
}
