package containerd

import (
	"context"
	"fmt"
	"sync"
	"time"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/containerd/options"
	"github.com/bulkhead-project/bulkhead/door/containerd/stdio"
)

// process is a task's first process or an exec.
//
// Its turn is taken by operations that change it, one after another. Publishing is held from the start of the process until
// its event is queued, so that the event of the exit comes later. A caller that has both takes the turn first. mu guards the
// fields below it, and no other lock is taken with it.
type process struct {
	container, id string // id is the exec's or, for a first process, the container's
	spec          []byte // of an exec
	names         stdio.Names
	turn          chan struct{} // of one place
	publishing    sync.Mutex
	exited        chan struct{} // closed when exit is known

	mu      sync.Mutex
	status  tasktypes.Status // UNKNOWN while it is created
	pid     int
	handle  Process
	streams *stdio.Streams
	exit    Exit
}

// task is a container.
type task struct {
	process
	bundle  string
	options options.Options
	cancel  context.CancelFunc // ends the creation

	execsMu sync.Mutex
	execs   map[string]*process
}

func newProcess(container, id string, names stdio.Names) process {
	return process{container: container, id: id, names: names, turn: make(chan struct{}, 1), exited: make(chan struct{})}
}

// take waits for the process's turn. The caller calls done at the end.
func (p *process) take(ctx context.Context) (done func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another operation on %s has not ended: %w", p.id, ctx.Err())
	}
}

// state returns the status and the handle, which is nil before the process was made.
func (p *process) state() (tasktypes.Status, Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.handle
}

// known reports whether the creation has succeeded.
func (p *process) known() bool {
	status, _ := p.state()
	return status != tasktypes.Status_UNKNOWN
}

// set changes the status of a process that has not ended.
func (p *process) set(status tasktypes.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status != tasktypes.Status_STOPPED {
		p.status = status
	}
}

// made records a process that the Runtime has made.
func (p *process) made(status tasktypes.Status, handle Process, streams *stdio.Streams) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.handle, p.pid, p.streams = status, handle, handle.PID(), streams
}

// holdStdin keeps the input open until the client asks to close it.
func (p *process) holdStdin() {
	p.mu.Lock()
	streams := p.streams
	p.mu.Unlock()
	streams.HoldStdin()
}

// ended records the end of the process.
func (p *process) ended(exit Exit) *stdio.Streams {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.exit = tasktypes.Status_STOPPED, exit
	close(p.exited)
	return p.streams
}

// end returns the exit of a process that has ended, and its pid.
func (p *process) end() (Exit, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, p.pid
}

// awaitEnd waits for the end of the process.
func (p *process) awaitEnd(ctx context.Context) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exec returns the exec with an id.
func (t *task) exec(id string) (*process, error) {
	t.execsMu.Lock()
	defer t.execsMu.Unlock()
	if p := t.execs[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("exec %.80q in task %s: %w", id, t.container, errdefs.ErrNotFound)
}

// running returns the execs that run.
func (t *task) running() (list []*process) {
	t.execsMu.Lock()
	defer t.execsMu.Unlock()
	for _, p := range t.execs {
		if status, _ := p.state(); status == tasktypes.Status_RUNNING {
			list = append(list, p)
		}
	}
	return list
}

// execsGrace is the time that the exit of a container waits for its execs, which end with it. Tests shorten it.
var execsGrace = 2 * time.Second
