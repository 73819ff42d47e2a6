package sandbox

import (
	"encoding/json"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// process is a container's first process or an exec'd one. The mutex of its table guards its fields, except those set
// once.
type process struct {
	table     *processes
	id        Process
	terminal  bool
	stdio     containerv1.Stdio
	createdAt time.Time
	host      *hostStreams   // nil unless it has containerv1.Descriptors
	vm        *liveVM        // that it runs in
	op        chan struct{}  // held by the current operation
	started   chan struct{}  // closed when it runs or never will
	done      chan struct{}  // closed when it has ended
	pumped    chan struct{}  // closed when its output has ended
	attached  chan struct{}  // closed when the first client attaches
	out       [2]*output.Hub // by logs.Stream; a terminal has only the first

	restored  bool // created under another shim
	hidden    bool // being created
	state     State
	pid       int
	spec      json.RawMessage // of an exec'd process, until it starts
	disks     []string        // of a container, its root's first
	startErr  error           // the error that its start will return
	exit      *Exit
	startedAt time.Time
	user      *agentv1.User   // nil until known
	oomKills  uint64          // of a container: the OOM kills that were reported
	exitKills uint64          // the OOM kills in its container until its end; 0 means unknown
	followed  bool            // its output is being read
	awaited   bool            // its exit is being awaited
	fed       bool            // a client feeds its stdin
	closeIn   bool            // close its stdin after that client
	size      *agentv1.Resize // of its terminal, before its start
	sized     *agentv1.Resize // the size that its terminal has
	log       *logs.Writer
}

// newProcess returns a process that is not in the table yet.
func (t *processes) newProcess(id Process, m *liveVM, terminal bool, stdio containerv1.Stdio) *process {
	p := &process{
		table: t, id: id, vm: m, terminal: terminal, stdio: stdio, state: Ready, createdAt: now(),
		op: make(chan struct{}, 1), started: make(chan struct{}), done: make(chan struct{}),
		pumped: make(chan struct{}), attached: make(chan struct{}),
	}
	p.out[logs.Stdout] = output.NewHub()
	if !terminal {
		p.out[logs.Stderr] = output.NewHub()
	}
	if _, ok := stdio.(containerv1.Descriptors); ok {
		p.host = newHostStreams()
	}
	return p
}

func (p *process) hasStdin() bool { return p.stdio.Input() != containerv1.NoStdin }

// logs reports whether the process's output goes to a log.
func (p *process) logs() bool {
	_, ok := p.stdio.(containerv1.Log)
	return ok
}

// streams reports whether the process's output waits for its first client.
func (p *process) streams() bool {
	_, ok := p.stdio.(containerv1.Stream)
	return ok || p.host != nil
}

// kept reports whether the process's output is passed on to a log or to files of the host, as opposed to clients. The
// caller holds mu.
func (p *process) kept() bool {
	return p.followed && (p.logs() || p.host != nil && p.host.files != nil)
}

// subject returns the process's name for errors.
func (p *process) subject() string { return subject(p.id) }

func subject(id Process) string {
	if id.Exec == "" {
		return "container " + id.Container
	}
	return "process " + id.Container + "/" + id.Exec
}

func (p *process) status() ProcessStatus {
	return ProcessStatus{
		Process: p.id, State: p.state, PID: p.pid, Terminal: p.terminal, Exit: p.exit,
		CreatedAt: p.createdAt, StartedAt: p.startedAt, User: p.user,
	}
}

func (p *process) stored() records.Process {
	return records.Process{
		Leased: p.host != nil && p.host.leased,
		Exec:   p.id.Exec, State: p.state, PID: p.pid, Terminal: p.terminal,
		StdioRecord: records.StdioOf(p.stdio), Exit: p.exit, CreatedAt: p.createdAt, StartedAt: p.startedAt,
		User: p.user, OOMKills: p.oomKills,
	}
}

// closeLog closes the container's log. A pump that is still running notices that.
func (p *process) closeLog() {
	if p.log != nil {
		p.log.Close()
	}
}

// endOutput ends the streams of a process that will write no more output.
func (p *process) endOutput() {
	for _, h := range p.out {
		if h != nil {
			h.End()
		}
	}
	close(p.pumped)
}
