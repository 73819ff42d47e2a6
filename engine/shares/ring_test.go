package shares

import (
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/share"
)

// ringPod is a pod with a shim that supports rings, with or without a server.
type ringPod struct {
	pod
	old bool
}

func (p *ringPod) Record() store.Pod { return store.Pod{ShareServer: p.server, Ring: !p.old} }

func newSet(p *ringPod) *Set { return New(p, Host{Logger: slog.New(slog.DiscardHandler)}) }

// served makes a process the pod's server, with that file in the place of its ring.
func (p *ringPod) served(t *testing.T, fourth *os.File) *exec.Cmd {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd := exec.Command("sleep", "600")
	cmd.ExtraFiles = []*os.File{null, fourth}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if p.server, err = procid.Of(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestRing checks that all servers of a pod have the same ring, also under the next engine, unless an earlier one
// still has it.
func TestRing(t *testing.T) {
	t.Parallel()
	p := &ringPod{}
	s := newSet(p)
	defer s.Close()
	ring, err := s.ringFor(p.Record())
	if err != nil || ring == nil || ring != s.Ring() {
		t.Fatalf("the first server's: %v, %v, %v", ring, s.Ring(), err)
	}
	first := p.served(t, ring)
	if got, err := s.ringFor(p.Record()); got != ring || err != nil {
		// One thread counts as none: the caller has checked that the process is not alive.
		t.Errorf("the second server's: %v, %v", got, err)
	}
	next := newSet(p)
	defer next.Close()
	next.findRing(p.server)
	if !same(t, ring, next.Ring()) {
		t.Error("the next engine does not find it")
	}
	_, _ = first.Process.Kill(), first.Wait()
	if got, err := next.ringFor(p.Record()); got == nil || got != next.Ring() || err != nil {
		t.Errorf("the server's after it: %v, %v", got, err)
	}
	lost := newSet(p)
	lost.findRing(p.server)
	if got, err := lost.ringFor(p.Record()); got != nil || err != nil {
		t.Errorf("in a new engine: %v, %v", got, err)
	}
	next.Close()
	if next.Ring() != nil {
		t.Error("the ring is still there without a VM")
	}
}

// TestRingRefused checks that a replaced ring is refused, that a server with running threads keeps it, and that a
// pod of an older engine has none.
func TestRingRefused(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p := &ringPod{}
	p.served(t, null)
	s := newSet(p)
	if s.findRing(p.server); s.Ring() != nil {
		t.Error("/dev/null is accepted as the ring")
	}
	own, err := procid.Of(os.Getpid()) // it has many threads
	if err != nil {
		t.Fatal(err)
	}
	s.ring, err = share.NewRing()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.ringFor(store.Pod{ShareServer: own, Ring: true}); got != nil || err != nil {
		t.Errorf("while another may write to it: %v, %v", got, err)
	}
	second := p.served(t, null) // it has no ring
	_, _ = second.Process.Kill(), second.Wait()
	if got, err := s.ringFor(p.Record()); got != nil || err != nil {
		t.Errorf("after a server that came while another may write to it: %v, %v", got, err)
	}
	old := newSet(&ringPod{old: true})
	if got, err := old.ringFor(store.Pod{}); got != nil || err != nil {
		t.Errorf("pod of an older engine: %v, %v", got, err)
	}
}

func same(t *testing.T, a, b *os.File) bool {
	t.Helper()
	if a == nil || b == nil {
		return false
	}
	one, err := a.Stat()
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(one, other)
}
