// Package devices gives a container the program that decides which devices it may use, as
// crun has loaded it for one before with the same rules: to make and check one takes an
// emulated machine longer than all else that crun does with a cgroup.
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

// most is how many programs are kept: those of ordinary and of privileged containers, and some.
const most = 8

// Programs are kept by the text of the rules that they are of. Its zero value keeps none; its
// methods may be called at once.
type Programs struct {
	mu  sync.Mutex
	all map[string]*os.File
}

// Has says that there is a program of these rules.
func (p *Programs) Has(rules string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[rules] != nil
}

// Attach has the program of these rules, which there is, decide for a cgroup that has none.
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
		uint32(dir.Fd()), uint32(program.Fd()), unix.BPF_CGROUP_DEVICE, unix.BPF_F_ALLOW_MULTI, // as crun does
	}
	if _, err := bpf(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return fmt.Errorf("attach the device program to %s: %w", to, err)
	}
	return nil
}

// Keep keeps the program that crun has made of these rules, and attached to a cgroup as its
// only one. Without it the next container gets one of its own.
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

// attached is the program of a cgroup.
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
	return os.NewFile(uintptr(fd), "device program"), nil // which is closed by an exec
}

func bpf(command int, attr unsafe.Pointer, size uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
