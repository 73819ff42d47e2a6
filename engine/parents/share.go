package parents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/bulkhead-project/bulkhead/engine/rehearsal"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/share"
)

// shared returns the rehearsal of a container on a directory of the host, which is made in the parent's directory. The
// caller closes its ring.
func (p *Parents) shared(dir string) (*sandbox.SharedRehearsal, error) {
	tree := filepath.Join(dir, "shares")
	if err := rehearsal.Tree(tree); err != nil {
		return nil, err
	}
	spec, err := rehearsal.Shared()
	if err != nil {
		return nil, err
	}
	ring, err := share.NewRing()
	if err != nil {
		return nil, err
	}
	disk, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", ring.Fd())) // read-only
	if err != nil {
		ring.Close()
		return nil, fmt.Errorf("open the memory for answers: %w", err)
	}
	return &sandbox.SharedRehearsal{
		Name: rehearsal.ShareName(), Container: spec, Ring: disk,
		Serve: func(ctx context.Context) (func(context.Context) error, error) {
			defer ring.Close()
			return p.serve(ctx, dir, tree, ring)
		},
	}, nil
}

// serve starts the share server of a rehearsal. It serves the directories in tree until stop, or until the VM's end.
func (p *Parents) serve(ctx context.Context, dir, tree string, ring *os.File) (stop func(context.Context) error, err error) {
	conn, err := podsock.Dial(ctx, dir, hypervisor.ShareSocket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	port, err := conn.File()
	if err != nil {
		return nil, err
	}
	defer port.Close()
	cmd := exec.Command(p.o.Share, share.Rehearse, tree)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{"GOTRACEBACK=none"}, []*os.File{port, ring} // share.PortFD, share.RingFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", share.Program, err)
	}
	return func(context.Context) error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its status is the signal's
		return nil
	}, nil
}
