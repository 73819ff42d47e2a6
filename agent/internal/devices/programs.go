// Package devices lists the guest's devices, and reuses the BPF programs that decide which of them a container may use.
// crun loads a program for each set of rules. Loading and verifying it takes an emulated VM longer than the rest of crun's
// work on a cgroup.
package devices

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
)

// most bounds the kept programs: those of ordinary and privileged containers, and some more.
const most = 8

// Programs keeps programs by the text of their rules. The zero value is empty; its methods are safe for concurrent use.
type Programs struct {
	mu  sync.Mutex
	all map[string]*os.File
}

// Has reports whether there is a program for these rules.
func (p *Programs) Has(rules string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[rules] != nil
}

// Attach attaches the existing program for these rules to a cgroup that has none.
func (p *Programs) Attach(rules string, to cgroup.Dir) error {
	p.mu.Lock()
	program := p.all[rules]
	p.mu.Unlock()
	dir, err := os.Open(string(to))
	if err != nil {
		return fmt.Errorf("device program: %w", err)
	}
	defer dir.Close()
	attr := struct{ target, program, kind, flags uint32 }{
		uint32(dir.Fd()), uint32(program.Fd()), unix.BPF_CGROUP_DEVICE, unix.BPF_F_ALLOW_MULTI, // like crun
	}
	if _, err := bpf(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return fmt.Errorf("attach the device program to %s: %w", to, err)
	}
	return nil
}

// Keep keeps the program that crun has loaded for these rules and attached to a cgroup as its only one. Without it,
// crun loads another one for the next container.
func (p *Programs) Keep(rules string, of cgroup.Dir) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[rules] != nil || len(p.all) == most {
		return nil
	}
	program, err := attached(of)
	if err != nil {
		return err
	}
	if p.all == nil {
		p.all = map[string]*os.File{}
	}
	p.all[rules] = program
	return nil
}

// attached returns the program of a cgroup.
func attached(of cgroup.Dir) (*os.File, error) {
	dir, err := os.Open(string(of))
	if err != nil {
		return nil, fmt.Errorf("device program: %w", err)
	}
	defer dir.Close()
	ids := &[2]uint32{}
	var pinned runtime.Pinner
	pinned.Pin(ids)
	defer pinned.Unpin()
	query := struct {
		target, kind, flags, attachFlags uint32
		ids                              uint64
		count, _                         uint32
	}{target: uint32(dir.Fd()), kind: unix.BPF_CGROUP_DEVICE, ids: uint64(uintptr(unsafe.Pointer(ids))), count: uint32(len(ids))}
	if _, err := bpf(unix.BPF_PROG_QUERY, unsafe.Pointer(&query), unsafe.Sizeof(query)); err != nil {
		return nil, fmt.Errorf("device program of %s: %w", of, err)
	}
	if query.count != 1 {
		return nil, fmt.Errorf("device program of %s: found %d, want 1", of, query.count)
	}
	get := struct{ id, next, flags uint32 }{id: ids[0]}
	fd, err := bpf(unix.BPF_PROG_GET_FD_BY_ID, unsafe.Pointer(&get), unsafe.Sizeof(get))
	if err != nil {
		return nil, fmt.Errorf("device program %d: %w", ids[0], err)
	}
	return os.NewFile(uintptr(fd), "device program"), nil // close-on-exec
}

func bpf(command int, attr unsafe.Pointer, size uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
