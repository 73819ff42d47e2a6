package oci

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/door/oci/surrogate"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// ExecOptions are a request for another process in a container.
type ExecOptions struct {
	ID string
	// Name is unique in the container, for ResizeProcess and SignalExec. Empty means any name.
	Name string
	// Plain is as in CreateOptions.
	Plain         bool
	Process       *specs.Process
	PIDFile       string
	ConsoleSocket string
	Streams       [3]*os.File
}

// processType is the type of a process in containerd's Task API.
const processType = "types.containerd.io/opencontainers/runtime-spec/1/Process"

// Exec runs another process in a running container and returns its surrogate. The surrogate's exit code is the
// process's.
func (d *Door) Exec(ctx context.Context, o ExecOptions) (pid *os.Process, err error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, err := d.read(o.ID)
	if err != nil {
		return nil, err
	}
	switch r.status() {
	case specs.StateRunning:
	case specs.StateStopped:
		return nil, errors.New("cannot exec in a stopped container")
	case "paused":
		return nil, errors.New("cannot exec in a paused container (use --ignore-paused to override)")
	default:
		return nil, fmt.Errorf("cannot exec in a container in the %s state", r.status())
	}
	if r.Sandbox {
		return nil, errSandbox
	}
	c, err := r.shim(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	process, ignored, err := convert.Process(o.Process, convert.ProcessOptions{Strict: d.o.Strict})
	if err != nil {
		return nil, fmt.Errorf("exec in container %s: %w", o.ID, err)
	}
	d.log(o.ID, ignored)
	raw, err := json.Marshal(process)
	if err != nil {
		return nil, err
	}
	exec := o.Name
	if exec == "" {
		exec = newExecID()
	}
	rollback.Push("process", func(ctx context.Context) error {
		_, err := c.Task.Delete(ctx, &taskv3.DeleteRequest{ID: r.Container, ExecID: exec})
		if notFound(err) {
			return nil
		}
		return err
	})
	stdin, stdout, stderr := containerv1.EncodeStdio(containerv1.Descriptors{Stdin: true})
	_, err = c.Task.Exec(ctx, &taskv3.ExecProcessRequest{
		ID: r.Container, ExecID: exec, Terminal: o.Process.Terminal, Stdin: stdin, Stdout: stdout, Stderr: stderr,
		Spec: &anypb.Any{TypeUrl: processType, Value: raw},
	})
	if err != nil {
		return nil, fmt.Errorf("exec failed: unable to start container process: %w", plain(err))
	}
	h, err := d.execHelper(r, o)
	if err != nil {
		return nil, err
	}
	rollback.Push("surrogate", h.kill)
	t := surrogate.Target{Dir: r.Pod.Dir, Container: r.Container, Exec: exec, Terminal: o.terminal(), Stdin: true}
	if err := h.order(ctx, surrogate.Attach, t.Fields()...); err != nil {
		return nil, err
	}
	if err := h.order(ctx, surrogate.Enter); err != nil {
		return nil, err
	}
	if err := writePID(o.PIDFile, h.id.PID); err != nil {
		return nil, err
	}
	if _, err := c.Task.Start(ctx, &taskv3.StartRequest{ID: r.Container, ExecID: exec}); err != nil {
		return nil, fmt.Errorf("exec failed: unable to start container process: %w", plain(err))
	}
	return h.cmd.Process, h.release(ctx)
}

// terminal reports whether the surrogate has the host's end of a terminal.
func (o ExecOptions) terminal() bool { return o.Process.Terminal && !o.Plain }

// execHelper starts the surrogate of an exec in the container's namespaces.
func (d *Door) execHelper(r *record, o ExecOptions) (*helper, error) {
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", r.Surrogate.PID))
	if err != nil {
		return nil, fmt.Errorf("find the container's mounts: %w", err)
	}
	defer mounts.Close()
	ho := helperOptions{name: r.ID + "-exec", streams: o.Streams, terminal: o.terminal(), cgroup: r.Cgroup,
		descriptor: []*os.File{mounts},
	}
	for _, one := range []struct {
		name string
		kind int
	}{{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}} {
		ho.join = append(ho.join, joined{fmt.Sprintf("/proc/%d/ns/%s", r.Surrogate.PID, one.name), one.kind})
	}
	if ho.users, err = r.users(); err != nil {
		return nil, err
	}
	if o.terminal() {
		slave, err := openConsole(o.ConsoleSocket, o.Process.ConsoleSize)
		if err != nil {
			return nil, err
		}
		defer slave.Close()
		ho.streams = [3]*os.File{slave, slave, slave}
	}
	return startHelper(ho)
}

func newExecID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "e" + hex.EncodeToString(b[:])
}
