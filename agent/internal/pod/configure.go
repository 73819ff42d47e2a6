// Package pod is the pod of the guest: its configuration and its network.
//
// The host configures a VM once for its pod, or first for a rehearsal and then for its pod. Containers enter only a
// configured VM, and the containers of a rehearsal must have left before the pod's own Configure.
package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/clock"
	"github.com/bulkhead-project/bulkhead/agent/internal/interfaces"
	"github.com/bulkhead-project/bulkhead/agent/internal/limits"
	"github.com/bulkhead-project/bulkhead/agent/internal/resolver"
	"github.com/bulkhead-project/bulkhead/agent/internal/scratch"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// dir has the files that every container gets.
const dir = "/run/bulkhead/pod"

// FilesDir is for the files of specifications. It is in the same file system as the files that every container gets.
const FilesDir = dir + "/files"

// ShmDir is the containers' shared /dev/shm.
const ShmDir = "/run/bulkhead/shm"

// Pod is the pod. It is safe for concurrent use.
type Pod struct {
	crun   string // crun's version
	limits *limits.Limits
	space  *scratch.Space

	resolver resolver.Relay // of the pod's DNS queries

	configuring sync.Mutex        // held by Configure and SetNetwork; guards the following
	shm         int64             // the size of the mounted /dev/shm, in bytes
	cards       *interfaces.Cards // and the interfaces that they are for the pod

	mu         sync.Mutex // guards the following; never held while waiting
	configured *agentv1.Configured
	request    agentv1.Configure
	containers int
}

// New returns the pod of a guest that is not configured. card is its first network card, and crun crun's version.
func New(card boot.Interface, crun string, l *limits.Limits, space *scratch.Space) (*Pod, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	// A separate file system: a container that fills its /etc/hosts must not take the space of the agent's files.
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m"); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	return &Pod{crun: crun, limits: l, space: space, cards: interfaces.New(card)}, nil
}

// Configure makes this clone distinct. It reseeds the random pool first, because the kernel derives the boot id from it
// at the first reading.
func (p *Pod) Configure(ctx context.Context, c agentv1.Configure) (agentv1.Configured, error) {
	p.configuring.Lock()
	defer p.configuring.Unlock()
	if done, err := p.isConfigured(c.Sandbox); err != nil {
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
		{agentv1.PartClock, func() error { return clock.Set(ctx, agentv1.SetTime{Time: c.Time}) }},
		{agentv1.PartHostname, func() error { return setHostname(c.Hostname) }},
		{agentv1.PartFiles, func() error { return writeFiles(c) }},
		{agentv1.PartShm, func() error { return p.mountShm(c.ShmBytes) }},
		{agentv1.PartNetwork, func() error { return p.cards.Configure(c.Network, p.request.Rehearsal) }},
		{agentv1.PartCards, func() error { return interfaces.SetCards(c.Cards) }},
		{agentv1.PartSysctls, func() error { return p.limits.Sysctls(c.Sysctls) }},
		{agentv1.PartLimits, func() error { return limits.Pod(c.Limits) }},
		{agentv1.PartScratch, func() error { return p.space.Limit(c.ScratchBytes) }},
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
		Crun:   p.crun,
		BootID: boot,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configured, p.request = &done, c
	p.request.Entropy = nil
	return done, nil
}

// Enter adds a container. The error matches agentv1.ErrBusy before the VM is configured.
func (p *Pod) Enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.configured == nil {
		return fmt.Errorf("the VM is not configured: %w", agentv1.ErrBusy)
	}
	p.containers++
	return nil
}

// Leave removes a container that has entered. It collects the garbage of a rehearsal, so that no pod's start waits for
// that.
func (p *Pod) Leave() {
	p.mu.Lock()
	p.containers--
	rehearsal := p.request.Rehearsal
	p.mu.Unlock()
	if rehearsal {
		runtime.GC()
	}
}

// Hostname returns the pod's hostname.
func (p *Pod) Hostname() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.request.Hostname
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
func (p *Pod) isConfigured(sandbox string) (*agentv1.Configured, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.configured == nil:
		return nil, nil
	case p.request.Rehearsal && p.containers > 0:
		return nil, fmt.Errorf("a container of the rehearsal is left: %w", agentv1.ErrBusy)
	case p.request.Rehearsal:
		p.configured = nil // refuse containers until the pod's own Configure
		return nil, nil
	case p.request.Sandbox != sandbox:
		return nil, fmt.Errorf("the VM is configured for another pod: %w", errdefs.ErrAlreadyExists)
	}
	return p.configured, nil
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

func setHostname(name string) error {
	if name == "" {
		return nil
	}
	return unix.Sethostname([]byte(name))
}

// The files that containers get, unless their specification mounts others.
var fileNames = []string{"hosts", "hostname", "resolv.conf", "machine-id"}

// Files returns these files by their paths in containers.
func Files() map[string]string {
	files := map[string]string{}
	for _, name := range fileNames {
		files["/etc/"+name] = filepath.Join(dir, name)
	}
	return files
}

func writeFiles(c agentv1.Configure) error {
	content := map[string]string{
		"hosts": c.Hosts, "hostname": c.Hostname + "\n", "resolv.conf": c.Resolv, "machine-id": c.MachineID + "\n",
	}
	for _, name := range fileNames {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content[name]), 0o644); err != nil {
			return err
		}
		// The agent itself needs them for forwarded ports.
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join("/etc", name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

const defaultShm = 64 << 20

// mountShm mounts the containers' shared /dev/shm, or resizes the one that a rehearsal has mounted.
func (p *Pod) mountShm(size int64) error {
	if size <= 0 {
		size = defaultShm
	}
	if p.shm == size {
		return nil
	}
	if err := os.MkdirAll(ShmDir, 0o755); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if p.shm != 0 {
		flags |= unix.MS_REMOUNT
	}
	if err := unix.Mount("shm", ShmDir, "tmpfs", flags, "mode=1777,size="+strconv.FormatInt(size, 10)); err != nil {
		return err
	}
	p.shm = size
	return nil
}
