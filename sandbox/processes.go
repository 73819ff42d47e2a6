package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/work"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// processes is the table of a sandbox's containers and exec'd processes. It stores and publishes their changes, and
// runs their standard streams. All methods are safe for concurrent use, except if the comment demands mu.
//
// A process stays in the table from reserve, createExec or load until forget. Its exit is final, and comes at the
// latest with the end of its VM (endAll).
type processes struct {
	store       *records.Store
	emit        func(Event) // called with mu held, so that events are queued in the order of the changes
	work        *work.Group
	log         *slog.Logger
	callTimeout time.Duration // Options.CallTimeout
	patience    time.Duration // exitPatience
	oomPause    time.Duration // oomPause
	execs       chan struct{} // has an element for each exec'd process that runs

	mu      sync.Mutex
	all     map[Process]*process
	watched *liveVM // the VM with kills that watchOOM reports
}

// find returns a process; the caller holds mu.
func (t *processes) find(id Process) (*process, error) {
	if p := t.all[id]; p != nil && !p.hidden {
		return p, nil
	}
	return nil, fmt.Errorf("%s: %w", subject(id), errdefs.ErrNotFound)
}

// get returns a process.
func (t *processes) get(id Process) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(id)
}

// getIn returns a process in one of the wanted states.
func (t *processes) getIn(id Process, action string, want ...State) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(id)
	if err == nil {
		err = expect(p.subject(), action, p.state, want...)
	}
	return p, err
}

// ids returns the processes that match, also those that are being created.
func (t *processes) ids(match func(Process) bool) (ids []Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.all {
		if match(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// statuses returns the current status of every process, by time of creation.
func (t *processes) statuses() (list []ProcessStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if !p.hidden {
			list = append(list, p.status())
		}
	}
	slices.SortFunc(list, func(a, b ProcessStatus) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list
}

// storeContainer stores the states of a container and its exec'd processes. The caller holds mu.
func (t *processes) storeContainer(id string) error {
	if t.all[Process{Container: id}] == nil {
		return nil
	}
	st := records.Container{Version: records.Version}
	for _, p := range t.all {
		if p.id.Container == id {
			st.Processes = append(st.Processes, p.stored())
		}
	}
	slices.SortFunc(st.Processes, func(a, b records.Process) int {
		if a.Exec == "" || b.Exec == "" {
			return cmp.Compare(a.Exec, b.Exec)
		}
		return a.CreatedAt.Compare(b.CreatedAt)
	})
	return t.store.Write(t.store.Container(id, "state.json"), st)
}

// storeOrLog is storeContainer for a change that cannot be undone. The caller holds mu.
func (t *processes) storeOrLog(id string) {
	if err := t.storeContainer(id); err != nil {
		t.log.Error("state not stored", "container", id, "error", err)
	}
}

// reserve adds a container that is being created. It is hidden until publish.
func (t *processes) reserve(p *process) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[p.id] != nil {
		return errdefs.ErrAlreadyExists
	}
	p.hidden = true
	t.all[p.id] = p
	return nil
}

// remove is the inverse of reserve.
func (t *processes) remove(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, p.id)
}

// record stores a container that is being created.
func (t *processes) record(p *process) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.storeContainer(p.id.Container)
}

// publish completes the creation of a container, unless its VM has ended. startErr is the error that its start will
// return.
func (t *processes) publish(p *process, created agentv1.Created, startErr error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.vm.Context().Err() != nil {
		return ErrVMGone
	}
	p.hidden, p.pid, p.user, p.startErr = false, created.PID, created.User, startErr
	t.emit(Event{Kind: ContainerCreated, Process: p.id, PID: p.pid})
	return nil
}

// maxProcesses bounds a sandbox's processes, including containers. A guest that refuses to delete processes must not
// fill the shim's memory and its state directory.
const maxProcesses = 256

// createExec adds a process of a running container.
func (t *processes) createExec(e ExecConfig, m *liveVM) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.find(Process{Container: e.Container})
	if err == nil {
		err = expect(c.subject(), "exec in", c.state, Running)
	}
	if err == nil && t.all[e.Process] != nil {
		err = fmt.Errorf("%s: %w", subject(e.Process), errdefs.ErrAlreadyExists)
	}
	if err == nil && len(t.all) >= maxProcesses {
		err = fmt.Errorf("%s: %w: too many processes: %d", subject(e.Process), errdefs.ErrResourceExhausted, len(t.all))
	}
	if err != nil {
		return err
	}
	p := t.newProcess(e.Process, m, e.Terminal, e.Stdio)
	p.spec = e.Spec
	t.all[e.Process] = p
	if err := t.storeContainer(e.Container); err != nil {
		delete(t.all, e.Process)
		return fmt.Errorf("create %s: %w", p.subject(), err)
	}
	t.emit(Event{Kind: ExecCreated, Process: p.id})
	return nil
}

// endAll ends every process that is alive, after the end of its VM.
func (t *processes) endAll(exit Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		p.finish(exit)
	}
}

// drainTimeout bounds the wait for output that a dead VM has left in its socket.
const drainTimeout = 2 * time.Second

// drain waits until the output pumps have read the remaining output.
func (t *processes) drain() {
	ctx, cancel := context.WithTimeout(t.work.Context(), drainTimeout)
	defer cancel()
	t.mu.Lock()
	var pumped []<-chan struct{}
	for _, p := range t.all {
		if p.kept() && (p.state != Stopped || p.host != nil) {
			pumped = append(pumped, p.pumped)
		}
	}
	t.mu.Unlock()
	for _, done := range pumped {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// deletable returns an error unless a process may be deleted.
func (p *process) deletable() error {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if p.table.all[p.id] != p {
		return fmt.Errorf("delete %s: %w", p.subject(), errdefs.ErrNotFound)
	}
	return expect(p.subject(), "delete", p.state, Ready, Stopped)
}

// forget removes a process that is deleted in the guest, for a container with its exec'd processes and its files.
func (t *processes) forget(p *process) (Exit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.finish(neverStarted())
	if p.id.Exec != "" {
		p.drop()
		return *p.exit, t.storeContainer(p.id.Container)
	}
	for id, q := range t.all {
		if id.Container == p.id.Container && id.Exec != "" {
			q.finish(neverStarted())
			q.drop()
		}
	}
	p.drop()
	if err := t.store.Locked(func() error { return os.RemoveAll(t.store.Container(p.id.Container)) }); err != nil {
		return *p.exit, fmt.Errorf("delete %s: %w", p.subject(), err)
	}
	return *p.exit, nil
}

// drop takes a process that has ended out of the table; the caller holds mu.
func (p *process) drop() {
	p.forgetFiles()
	delete(p.table.all, p.id)
	p.closeLog()
	p.table.emit(Event{Kind: ProcessDeleted, Process: p.id, PID: p.pid, Exit: p.exit})
}

// clear empties the table of a sandbox that is deleted.
func (t *processes) clear() {
	t.closeLogs()
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.all)
}

// closeLogs closes every log.
func (t *processes) closeLogs() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		p.closeLog()
	}
}

// load adds the stored processes of a container, without their VM.
func (t *processes) load(c records.ContainerConfig, st records.Container) {
	for _, stored := range st.Processes {
		t.all[Process{Container: c.ID, Exec: stored.Exec}] = t.loadProcess(c, stored)
	}
}

func (t *processes) loadProcess(c records.ContainerConfig, st records.Process) *process {
	stdio := st.Stdio()
	if st.Exec == "" {
		stdio = c.Stdio()
	}
	p := t.newProcess(Process{Container: c.ID, Exec: st.Exec}, nil, st.Terminal, stdio)
	p.state, p.pid, p.exit = st.State, st.PID, st.Exit
	p.createdAt, p.startedAt, p.user, p.restored = st.CreatedAt, st.StartedAt, st.User, true
	p.oomKills = st.OOMKills
	if st.Exec == "" {
		p.disks = c.Disks()
	} else if p.host == nil {
		close(p.attached) // its client is gone
	}
	if p.host != nil {
		p.host.leased = st.Leased
	}
	if p.state != Ready {
		close(p.started)
	}
	if p.state == Stopped {
		close(p.done)
		if !p.owesOutput() {
			p.endOutput()
		}
	}
	return p
}

// openLogs continues every log in its file by container. A log without its file waits for ReopenLog. openLogs closes
// the other files.
func (t *processes) openLogs(files map[string]*os.File, limit int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if p.id.Exec != "" || !p.logs() {
			continue
		}
		file := files[p.id.Container]
		delete(files, p.id.Container)
		w, err := logs.Open(t.store.Container(p.id.Container, "log"), file, limit)
		if err != nil {
			return fmt.Errorf("log of %s: %w", p.subject(), err)
		}
		p.log = w
	}
	for id, file := range files { // of unknown containers
		closeQuietly(file)
		delete(files, id)
	}
	return nil
}

// resume continues with every loaded process in its adopted VM, and returns the disks that they use. known is the guest's
// report, or nil without one.
func (t *processes) resume(m *liveVM, known map[Process]agentv1.Status) (disks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		p.resume(m, known)
		disks = append(disks, p.disks...)
	}
	return disks
}

// resume continues with one process; the caller holds mu.
func (p *process) resume(m *liveVM, known map[Process]agentv1.Status) {
	p.vm = m
	st, there := known[p.id]
	switch {
	case p.state == Stopped && p.owesOutput() && (there || known == nil):
		p.follow()
	case p.state == Stopped && p.owesOutput():
		p.endOutput()
	case p.state == Stopped:
	case known != nil && !there && p.id.Exec != "" && p.state == Ready:
		// It was not started, and its specification was lost with the shim.
		p.finish(neverStarted())
	case known != nil && !there:
		p.finish(Exit{Code: 137, Signal: 9, Reason: ReasonError, Message: "the agent does not know it", At: now()})
	case p.state == Ready && !there:
	case p.state == Ready && st.Created:
		p.pid = st.PID // the PID is stored only with the start
	case p.state == Ready: // it started, but that was not stored
		p.pid = st.PID
		p.setRunning()
		p.table.storeOrLog(p.id.Container)
	default:
		if there && p.id.Exec == "" { // the pause or its end may not have been stored
			p.state = Running
			if st.Paused {
				p.state = Paused
			}
		}
		p.startPump()
	}
}

// endLoaded ends every loaded process, because its VM has ended before.
func (t *processes) endLoaded(exit Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if p.state == Stopped && p.owesOutput() {
			p.endOutput()
		}
		p.finish(exit)
	}
}

// ProcessStatus returns the current status of a process, or errdefs.ErrNotFound.
func (t *processes) ProcessStatus(id Process) (ProcessStatus, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(id)
	if err != nil {
		return ProcessStatus{}, err
	}
	return p.status(), nil
}

// ReopenLog continues a container's log in f. The sandbox closes f eventually, also on error.
func (t *processes) ReopenLog(_ context.Context, id string, f *os.File) error {
	p, err := t.get(Process{Container: id})
	if err == nil && p.log == nil {
		err = fmt.Errorf("container %s: %w: it has no log", id, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("reopen the log: %w", err)
	}
	return p.log.Reopen(f)
}
