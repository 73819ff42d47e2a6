package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// fakeAgent answers like the guest's agent, with processes that a test controls. It outlives sessions, like the real
// one.
type fakeAgent struct {
	version int

	mu         sync.Mutex
	calls      []agentv1.Op
	configured []agentv1.Configure
	networks   []agentv1.SetNetwork
	created    []agentv1.Create
	clock      []time.Time
	ahead      time.Duration // of the host's clock
	mounts     map[string]int
	procs      map[agentv1.Process]*fakeProc
	fail       map[agentv1.Op]error
	hang       map[agentv1.Op]bool
	// raw replaces the handler of an op: a hostile agent.
	raw map[agentv1.Op]func(conn net.Conn)

	kills  map[string]uint64 // OOM kills by container
	killed chan struct{}     // closed and replaced at every kill
}

// kill counts OOM kills in a container.
func (a *fakeAgent) kill(container string, n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kills[container] += n
	close(a.killed)
	a.killed = make(chan struct{})
}

// oomKills waits for a change of the kills.
func (a *fakeAgent) oomKills(ctx context.Context, known agentv1.OOMKills) (agentv1.OOMKills, error) {
	for {
		a.mu.Lock()
		now, killed := maps.Clone(a.kills), a.killed
		a.mu.Unlock()
		for id, n := range now {
			if known.Kills[id] != n {
				return agentv1.OOMKills{Kills: now}, nil
			}
		}
		select {
		case <-killed:
		case <-ctx.Done():
			return agentv1.OOMKills{}, ctx.Err()
		}
	}
}

// outputBound bounds the unacknowledged bytes of a stream that the agent keeps.
const outputBound = 64 << 10

type fakeProc struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	out     map[string]*fakeStream
	input   []byte
	feeder  int // number of the latest Input, which ends earlier ones
	inEOF   bool
	running bool
	paused  bool
	exit    *agentv1.Exit
	signals []int
	all     bool // the last signal was for all of its container
	stdin   bool
	keep    bool // its stdin outlives an Input
	noAcks  bool // input is read and never acknowledged
	size    [2]uint16
}

type fakeStream struct {
	base  int64  // offset of data[0]
	data  []byte // not acknowledged
	acked int64
	ended bool
	shut  bool // NoReader was called
}

func newFakeAgent() *fakeAgent {
	return &fakeAgent{
		kills: map[string]uint64{}, killed: make(chan struct{}),
		version: agentv1.Version, mounts: map[string]int{}, procs: map[agentv1.Process]*fakeProc{},
		fail: map[agentv1.Op]error{}, hang: map[agentv1.Op]bool{}, raw: map[agentv1.Op]func(net.Conn){},
	}
}

func newFakeProc(stdin bool) *fakeProc {
	return &fakeProc{
		changed: make(chan struct{}), stdin: stdin,
		out: map[string]*fakeStream{"stdout": {}, "stderr": {}},
	}
}

// update changes the process under its lock and wakes waiters.
func (p *fakeProc) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits for a condition, which it checks under the lock.
func (p *fakeProc) until(ctx context.Context, cond func() bool) error {
	for {
		p.mu.Lock()
		ok, changed := cond(), p.changed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write writes output as the process; it blocks while the bound is reached.
func (p *fakeProc) write(ctx context.Context, stream string, data []byte) error {
	for len(data) > 0 {
		if err := p.until(ctx, func() bool { return len(p.out[stream].data) < outputBound || p.out[stream].shut }); err != nil {
			return err
		}
		p.mu.Lock()
		shut := p.out[stream].shut
		p.mu.Unlock()
		if shut {
			return unix.EPIPE
		}
		p.update(func() {
			s := p.out[stream]
			n := min(len(data), outputBound-len(s.data))
			s.data = append(s.data, data[:n]...)
			data = data[n:]
		})
	}
	return nil
}

// finish ends the process.
func (p *fakeProc) finish(exit agentv1.Exit) {
	p.update(func() {
		if p.exit == nil {
			p.exit, p.running = &exit, false
		}
		for _, s := range p.out {
			s.ended = true
		}
	})
}

func (a *fakeAgent) proc(id agentv1.Process) (*fakeProc, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.procs[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s/%s: %w", id.Container, id.Exec, errdefs.ErrNotFound)
}

// note adds an action of the host on the VM to the calls.
func (a *fakeAgent) note(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, agentv1.Op(what))
}

// resized returns and clears the changes of the VM's memory and of limits, in order.
func (a *fakeAgent) resized() (calls []agentv1.Op) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c == agentv1.OpUpdate || strings.HasPrefix(string(c), "grow") {
			calls = append(calls, c)
		}
	}
	a.calls = nil
	return calls
}

func (a *fakeAgent) count(op agentv1.Op) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, c := range a.calls {
		if c == op {
			n++
		}
	}
	return n
}

func (a *fakeAgent) refuse(op agentv1.Op, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail[op] = err
}

// answer makes raw answer the calls of op.
func (a *fakeAgent) answer(op agentv1.Op, raw func(net.Conn)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raw[op] = raw
}

// stall leaves the calls of op without an answer.
func (a *fakeAgent) stall(op agentv1.Op) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hang[op] = true
}

// serve answers one call.
func (a *fakeAgent) serve(ctx context.Context, conn net.Conn) {
	handlers := a.handlers()
	wrapped := agentv1.Handlers{}
	for op, h := range handlers {
		wrapped[op] = func(ctx context.Context, s *agentv1.Stream) error {
			a.mu.Lock()
			a.calls = append(a.calls, op)
			err, hang, raw := a.fail[op], a.hang[op], a.raw[op]
			a.mu.Unlock()
			if raw != nil {
				raw(s.Conn)
				return nil
			}
			if hang {
				io.Copy(io.Discard, s.Conn)
				return nil
			}
			if err != nil {
				return err
			}
			return h(ctx, s)
		}
	}
	agentv1.Serve(ctx, conn, wrapped)
}

func (a *fakeAgent) handlers() agentv1.Handlers {
	type none = struct{}
	return agentv1.Handlers{
		agentv1.OpConfigure: agentv1.Unary(func(_ context.Context, r agentv1.Configure) (agentv1.Configured, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.configured = append(a.configured, r)
			return agentv1.Configured{Kernel: "6.1", Crun: "1.8", BootID: "b"}, nil
		}),
		agentv1.OpSetTime: agentv1.Unary(func(_ context.Context, r agentv1.SetTime) (none, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.clock = append(a.clock, r.Time)
			return none{}, nil
		}),
		agentv1.OpPing: agentv1.Unary(func(context.Context, none) (agentv1.Pong, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return agentv1.Pong{Time: time.Now().Add(a.ahead)}, nil
		}),
		agentv1.OpAdjust: agentv1.Unary(func(_ context.Context, r agentv1.AdjustTime) (none, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.ahead += r.By
			return none{}, nil
		}),
		agentv1.OpFlush: agentv1.Unary(func(context.Context, none) (none, error) { return none{}, nil }),
		agentv1.OpMemory: agentv1.Unary(func(context.Context, none) (agentv1.Memory, error) {
			return agentv1.Memory{Total: 256 << 20, Available: 200 << 20}, nil
		}),
		agentv1.OpMount: agentv1.Unary(func(_ context.Context, r agentv1.Mount) (none, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.mounts[r.Name] = r.Slot
			return none{}, nil
		}),
		agentv1.OpUnmount: agentv1.Unary(func(_ context.Context, r agentv1.Unmount) (none, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.mounts, r.Name)
			return none{}, nil
		}),
		agentv1.OpCreate: agentv1.Unary(func(_ context.Context, r agentv1.Create) (agentv1.Created, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.created = append(a.created, r)
			a.procs[agentv1.Process{Container: r.Container}] = newFakeProc(r.Stdin)
			return agentv1.Created{PID: 7}, nil
		}),
		agentv1.OpStart: agentv1.Unary(func(_ context.Context, r agentv1.Process) (none, error) {
			p, err := a.proc(r)
			if err == nil {
				p.update(func() { p.running = true })
			}
			return none{}, err
		}),
		agentv1.OpExec: agentv1.Unary(func(_ context.Context, r agentv1.Exec) (agentv1.Created, error) {
			p := newFakeProc(r.Stdin)
			var spec struct {
				ConsoleSize struct{ Width, Height uint16 }
			}
			if err := json.Unmarshal(r.Spec, &spec); err != nil {
				return agentv1.Created{}, err
			}
			p.size = [2]uint16{spec.ConsoleSize.Width, spec.ConsoleSize.Height}
			p.running, p.keep = true, r.KeepStdin
			a.mu.Lock()
			defer a.mu.Unlock()
			a.procs[r.Process] = p
			return agentv1.Created{PID: 9}, nil
		}),
		agentv1.OpSignal: agentv1.Unary(func(_ context.Context, r agentv1.Signal) (none, error) {
			p, err := a.proc(r.Process)
			if err != nil {
				return none{}, err
			}
			p.update(func() { p.signals, p.all = append(p.signals, r.Signal), r.All })
			if r.Signal == 9 {
				p.finish(agentv1.Exit{Code: 137, Signal: 9, At: time.Now()})
			}
			return none{}, nil
		}),
		agentv1.OpWait: agentv1.Waiting(func(ctx context.Context, r agentv1.Process) (agentv1.Exit, error) {
			p, err := a.proc(r)
			if err != nil {
				return agentv1.Exit{}, err
			}
			if err := p.until(ctx, func() bool { return p.exit != nil }); err != nil {
				return agentv1.Exit{}, err
			}
			return *p.exit, nil
		}),
		agentv1.OpDelete: agentv1.Unary(func(_ context.Context, r agentv1.Process) (agentv1.Exit, error) {
			p, err := a.proc(r)
			if err != nil {
				return agentv1.Exit{}, err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.running {
				return agentv1.Exit{}, agentv1.ErrBusy
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.procs, r)
			return agentv1.Exit{}, nil
		}),
		agentv1.OpResize: agentv1.Unary(func(_ context.Context, r agentv1.Resize) (none, error) {
			p, err := a.proc(r.Process)
			if err == nil {
				p.update(func() { p.size = [2]uint16{r.Width, r.Height} })
			}
			return none{}, err
		}),
		agentv1.OpPause: agentv1.Unary(func(_ context.Context, r agentv1.Process) (none, error) {
			p, err := a.proc(r)
			if err == nil {
				p.update(func() { p.paused = true })
			}
			return none{}, err
		}),
		agentv1.OpResume: agentv1.Unary(func(_ context.Context, r agentv1.Process) (none, error) {
			p, err := a.proc(r)
			if err == nil {
				p.update(func() { p.paused = false })
			}
			return none{}, err
		}),
		agentv1.OpUpdate: agentv1.Unary(func(context.Context, agentv1.Update) (none, error) { return none{}, nil }),
		agentv1.OpStats: agentv1.Unary(func(context.Context, agentv1.Process) (agentv1.Stats, error) {
			return agentv1.Stats{CPUUsec: 5}, nil
		}),
		agentv1.OpPids: agentv1.Unary(func(context.Context, agentv1.Process) (agentv1.Pids, error) {
			return agentv1.Pids{Pids: []int{7}}, nil
		}),
		agentv1.OpList: agentv1.Unary(func(context.Context, none) (agentv1.List, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			var l agentv1.List
			for id, p := range a.procs {
				p.mu.Lock()
				l.Processes = append(l.Processes, agentv1.Status{
					Process: id, PID: 7, Created: !p.running && p.exit == nil, Exit: p.exit, Paused: p.paused,
				})
				p.mu.Unlock()
			}
			return l, nil
		}),
		agentv1.OpOOMKills: agentv1.Waiting(a.oomKills),
		agentv1.OpReadFile: agentv1.Unary(func(context.Context, agentv1.ReadFile) (agentv1.File, error) {
			return agentv1.File{Data: bytes.Repeat([]byte("x"), 100)}, nil
		}),
		agentv1.OpPack: func(_ context.Context, s *agentv1.Stream) error {
			if err := s.Reply(nil); err != nil {
				return err
			}
			e := agentv1.Entry{Kind: agentv1.KindFile, Name: []byte("a"), Size: 4}
			return errors.Join(agentv1.WriteEntry(s, e), write(s, "text"), agentv1.WriteEntry(s, agentv1.Entry{Kind: agentv1.KindEnd}))
		},
		agentv1.OpUnpack: func(_ context.Context, s *agentv1.Stream) error {
			if err := s.Reply(nil); err != nil {
				return err
			}
			e, err := agentv1.ReadEntry(s)
			if err == nil {
				err = fmt.Errorf("no place for %s", e.Name)
			}
			return agentv1.WriteFrame(s, agentv1.Reply{Error: agentv1.ToError(err)}, agentv1.MaxReply)
		},
		agentv1.OpUsage: agentv1.Unary(func(context.Context, struct{}) (agentv1.Usage, error) {
			return agentv1.Usage{Disk: agentv1.DiskUsage{ReadBytes: 3}}, nil
		}),
		agentv1.OpNetwork: agentv1.Unary(func(_ context.Context, r agentv1.SetNetwork) (none, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.networks = append(a.networks, r)
			return none{}, nil
		}),
		agentv1.OpNoReader: agentv1.Unary(func(_ context.Context, r agentv1.NoReader) (none, error) {
			p, err := a.proc(r.Process)
			if err == nil {
				p.update(func() {
					s := p.out[r.Stream]
					s.base, s.data, s.ended, s.shut = s.base+int64(len(s.data)), nil, true, true
				})
			}
			return none{}, err
		}),
		agentv1.OpOutput: a.output,
		agentv1.OpInput:  a.input,
		agentv1.OpForward: func(_ context.Context, s *agentv1.Stream) error {
			if err := s.Reply(nil); err != nil {
				return err
			}
			c := agentv1.NewChunkConn(s.Conn)
			io.Copy(c, c)
			return c.CloseWrite()
		},
	}
}

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func (a *fakeAgent) output(ctx context.Context, s *agentv1.Stream) error {
	var r agentv1.Output
	if err := json.Unmarshal(s.Body, &r); err != nil {
		return err
	}
	p, err := a.proc(r.Process)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st := p.out[r.Stream]
	ack := func(to int64) {
		p.update(func() {
			if n := to - st.base; n > 0 && n <= int64(len(st.data)) {
				st.data, st.base = st.data[n:], to
			}
			st.acked = max(st.acked, to)
		})
	}
	ack(r.Offset)
	p.mu.Lock()
	next := max(r.Offset, st.base)
	p.mu.Unlock()
	if err := s.Reply(agentv1.Offset{Offset: next}); err != nil {
		return err
	}
	go func() {
		defer cancel()
		for {
			to, err := agentv1.ReadAck(s.Conn)
			if err != nil {
				return
			}
			ack(to)
		}
	}()
	for {
		if err := p.until(ctx, func() bool { return st.base+int64(len(st.data)) > next || st.ended }); err != nil {
			return err
		}
		p.mu.Lock()
		var data []byte
		if !st.shut {
			data = bytes.Clone(st.data[max(next-st.base, 0):])
		}
		p.mu.Unlock()
		if len(data) > agentv1.MaxChunk {
			data = data[:agentv1.MaxChunk]
		}
		if err := agentv1.WriteChunk(s.Conn, data); err != nil {
			return err
		}
		if len(data) == 0 {
			<-ctx.Done() // the last acknowledgement
			return nil
		}
		next += int64(len(data))
	}
}

func (a *fakeAgent) input(_ context.Context, s *agentv1.Stream) error {
	var r agentv1.Input
	if err := json.Unmarshal(s.Body, &r); err != nil {
		return err
	}
	p, err := a.proc(r.Process)
	if err != nil {
		return err
	}
	var turn int
	var at int64
	p.update(func() { p.feeder++; turn, at = p.feeder, int64(len(p.input)) })
	if err := s.Reply(agentv1.Offset{Offset: at}); err != nil {
		return err
	}
	buf := make([]byte, agentv1.MaxChunk)
	for {
		data, err := agentv1.ReadChunk(s.Conn, buf)
		if errors.Is(err, io.EOF) {
			p.update(func() { p.inEOF = true })
			return nil
		}
		if err != nil {
			return err
		}
		var replaced, silent bool
		p.update(func() {
			if replaced, silent = p.feeder != turn, p.noAcks; !replaced {
				p.input = append(p.input, data...)
				at = int64(len(p.input))
			}
		})
		if replaced {
			return nil
		}
		if silent {
			continue
		}
		if err := agentv1.WriteAck(s.Conn, at); err != nil {
			return err
		}
	}
}
