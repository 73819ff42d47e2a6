package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/interfaces"
	"github.com/bulkhead-project/bulkhead/agent/internal/limits"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// configure makes this clone distinct. It reseeds the random pool first, because the kernel derives the boot id from it
// at the first reading.
func (a *Agent) configure(ctx context.Context, c agentv1.Configure) (agentv1.Configured, error) {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	if done, err := a.isConfigured(c.Sandbox); err != nil {
		return agentv1.Configured{}, err
	} else if done != nil {
		return *done, nil
	}
	if err := validate(c); err != nil {
		return agentv1.Configured{}, err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{agentv1.PartReseed, func() error { return reseed(c.Entropy) }},
		{agentv1.PartClock, func() error { return setClock(c.Time) }},
		{agentv1.PartHostname, func() error { return setHostname(c.Hostname) }},
		{agentv1.PartFiles, func() error { return podFiles(c) }},
		{agentv1.PartShm, func() error { return a.mountShm(c.ShmBytes) }},
		{agentv1.PartNetwork, func() error { return a.cards.Configure(c.Network, a.pod.Rehearsal) }},
		{agentv1.PartCards, func() error { return interfaces.SetCards(c.Cards) }},
		{agentv1.PartSysctls, func() error { return a.limits.Sysctls(c.Sysctls) }},
		{agentv1.PartLimits, func() error { return limits.Pod(c.Limits) }},
		{agentv1.PartScratch, func() error { return a.space.Limit(c.ScratchBytes) }},
	} {
		end := agentv1.Begin(ctx, step.name)
		err := step.do()
		end()
		if err != nil {
			return agentv1.Configured{}, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	boot, err := bootID(c.Rehearsal)
	if err != nil {
		return agentv1.Configured{}, err
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return agentv1.Configured{}, fmt.Errorf("uname: %w", err)
	}
	done := agentv1.Configured{
		Kernel: unix.ByteSliceToString(uts.Release[:]),
		Crun:   a.crun.Version,
		BootID: boot,
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.configured, a.pod = &done, c
	a.pod.Entropy = nil
	return done, nil
}

// bootID returns the kernel's boot id, which the kernel creates at the first reading and keeps. A rehearsing VM may be
// copied for many pods, so the id is not read there.
func bootID(rehearsal bool) (string, error) {
	if rehearsal {
		return "", nil
	}
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// isConfigured returns the answer of an earlier Configure for this sandbox: a new shim may not know whether its
// predecessor got so far. It returns nil if there was none, or only a rehearsal without remaining containers.
func (a *Agent) isConfigured(sandbox string) (*agentv1.Configured, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.configured == nil:
		return nil, nil
	case a.pod.Rehearsal && len(a.containers) > 0:
		return nil, fmt.Errorf("a container of the rehearsal is left: %w", agentv1.ErrBusy)
	case a.pod.Rehearsal:
		a.configured = nil // refuse containers until the pod's own Configure
		return nil, nil
	case a.pod.Sandbox != sandbox:
		return nil, fmt.Errorf("the VM is configured for another pod: %w", errdefs.ErrAlreadyExists)
	}
	return a.configured, nil
}

func validate(c agentv1.Configure) error {
	switch {
	case len(c.Entropy) < 32:
		return fmt.Errorf("%d bytes of entropy: must be at least 32: %w", len(c.Entropy), errdefs.ErrInvalidArgument)
	case c.Time.Unix() <= 0:
		return fmt.Errorf("time %v: %w", c.Time, errdefs.ErrInvalidArgument)
	case c.MachineID != "" && (len(c.MachineID) != 32 || strings.Trim(c.MachineID, "0123456789abcdef") != ""):
		return fmt.Errorf("machine id %.40q: %w", c.MachineID, errdefs.ErrInvalidArgument)
	}
	return nil
}

// reseed mixes the host's entropy into the kernel's pool and reseeds the generator.
func reseed(entropy []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var pool struct {
		bits, size int32
		buf        [512]byte
	}
	n := copy(pool.buf[:], entropy)
	pool.bits, pool.size = int32(8*n), int32(n)
	fd := f.Fd()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("reseed: %w", errno)
	}
	return nil
}

// ping returns the monotonic clock. A host checks the kernel's clock rate with it.
func (a *Agent) ping(context.Context, none) (agentv1.Pong, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return agentv1.Pong{}, fmt.Errorf("clock_gettime: %w", err)
	}
	return agentv1.Pong{Uptime: time.Duration(ts.Nano()), Time: time.Now()}, nil
}

func setClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("clock_settime: %w", err)
	}
	return nil
}

func (a *Agent) setTime(_ context.Context, t agentv1.SetTime) (none, error) {
	if t.Time.Unix() <= 0 {
		return none{}, fmt.Errorf("time %v: %w", t.Time, errdefs.ErrInvalidArgument)
	}
	return none{}, setClock(t.Time)
}

// maxSlew is the largest deviation that the kernel corrects gradually, by half a millisecond per second.
const maxSlew = 500 * time.Millisecond

func (a *Agent) adjustTime(ctx context.Context, r agentv1.AdjustTime) (none, error) {
	if r.By.Abs() < maxSlew {
		if _, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_OFFSET_SINGLESHOT, Offset: r.By.Microseconds()}); err != nil {
			return none{}, fmt.Errorf("adjtimex: %w", err)
		}
		return none{}, nil
	}
	return a.setTime(ctx, agentv1.SetTime{Time: time.Now().Add(r.By)})
}

func setHostname(name string) error {
	if name == "" {
		return nil
	}
	return unix.Sethostname([]byte(name))
}

// The files that containers get, unless their specification mounts others.
var podFileNames = []string{"hosts", "hostname", "resolv.conf", "machine-id"}

func podFiles(c agentv1.Configure) error {
	content := map[string]string{
		"hosts": c.Hosts, "hostname": c.Hostname + "\n", "resolv.conf": c.Resolv, "machine-id": c.MachineID + "\n",
	}
	if err := os.MkdirAll(podDir, 0o755); err != nil {
		return err
	}
	for _, name := range podFileNames {
		if err := os.WriteFile(filepath.Join(podDir, name), []byte(content[name]), 0o644); err != nil {
			return err
		}
		// The agent itself needs them for forwarded ports.
		if err := os.Symlink(filepath.Join(podDir, name), filepath.Join("/etc", name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

const defaultShm = 64 << 20

// mountShm mounts the containers' shared /dev/shm, or resizes the one that a rehearsal has mounted.
func (a *Agent) mountShm(size int64) error {
	if size <= 0 {
		size = defaultShm
	}
	if a.shm == size {
		return nil
	}
	if err := os.MkdirAll(shmDir, 0o755); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if a.shm != 0 {
		flags |= unix.MS_REMOUNT
	}
	if err := unix.Mount("shm", shmDir, "tmpfs", flags, "mode=1777,size="+strconv.FormatInt(size, 10)); err != nil {
		return err
	}
	a.shm = size
	return nil
}
