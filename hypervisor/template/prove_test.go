package template_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisorfake"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

// TestDeafTemplateIsNotPublished saves the first VM while a host is connected that has stopped reading. Its clone does
// not answer, so another VM is booted, and its clone answers.
func TestDeafTemplateIsNotPublished(t *testing.T) {
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	r := dirs.Roots{Data: t.TempDir(), State: hypervisortest.Dir(t)}
	tmpl, err := template.Open(r, &deafener{Driver: d, t: t}).Build(within(t), hypervisortest.VMConfig(t), guest, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	if tmpl.Info.Tries != 2 || tmpl.Info.Answered == 0 {
		t.Errorf("%d tries, proven after %v", tmpl.Info.Tries, tmpl.Info.Answered)
	}
	if got := hypervisortest.Ask(t, clone(t, d, tmpl), "get"); got != "template" {
		t.Errorf("a clone says %q", got)
	}
}

// deafener is QEMU, but saves its first VM deaf.
type deafener struct {
	hypervisor.Driver
	t     *testing.T
	boots int
}

func (d *deafener) Boot(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	v, err := d.Driver.Boot(ctx, m, f, o)
	if d.boots++; d.boots > 1 || err != nil {
		return v, err
	}
	return deafened{v, d.t}, nil
}

type deafened struct {
	hypervisor.VM
	t *testing.T
}

func (v deafened) Save(ctx context.Context, state *os.File) error {
	conn, err := v.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, "chatter 1000000000"); err != nil {
		return err
	}
	time.Sleep(time.Second) // until the socket is full
	hypervisortest.SaveDeaf(ctx, v.t, v, state)
	return nil
}

// fakeStore returns a store of VMs with guests that answer "get".
func fakeStore(t *testing.T) (*template.Store, dirs.Roots, hypervisor.VMConfig) {
	t.Helper()
	r := dirs.Roots{Data: t.TempDir(), State: hypervisortest.Dir(t)}
	kernel := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(kernel, []byte("kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := hypervisor.VMConfig{Kernel: kernel, Accel: hypervisor.TCG, VCPUs: 1, Memory: 128, Network: hypervisor.NetworkNone}
	d := &hypervisorfake.Driver{Serve: func(_ *hypervisorfake.Guest, conn net.Conn) {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			fmt.Fprintln(conn, "yes")
		}
	}}
	return template.Open(r, d), r, m
}

func within(t *testing.T) context.Context {
	t.Helper()
	return hypervisortest.Within(t)
}

// TestProof: the outcome of a proof decides whether another VM is booted.
func TestProof(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		ready  []error // of the VMs that are booted
		answer []error // of their clones
		tries  int     // 0 if the build fails
		is     error   // its error
	}{
		"the first is fit":      {tries: 1},
		"its clones fail twice": {answer: []error{broken, broken}, tries: 3},
		"a VM is not fit":       {ready: []error{template.ErrUnfit}, tries: 2},
		"a VM does not boot":    {ready: []error{broken}, is: broken},
		"no clone ever answers": {answer: []error{broken, broken, broken, broken, nil}, is: template.ErrUnfit},
	} {
		t.Run(name, func(t *testing.T) {
			s, r, m := fakeStore(t)
			next := func(errs *[]error) (err error) {
				if len(*errs) > 0 {
					err, *errs = (*errs)[0], (*errs)[1:]
				}
				return err
			}
			tmpl, err := s.Build(within(t), m, template.Guest{
				Ready:  func(context.Context, hypervisor.VM) error { return next(&c.ready) },
				Answer: func(context.Context, hypervisor.VM) error { return next(&c.answer) },
			}, "test")
			if c.tries == 0 {
				if !errors.Is(err, c.is) {
					t.Errorf("error %v", err)
				}
				onlyLocks(t, r)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer tmpl.Close()
			if tmpl.Info.Tries != c.tries || tmpl.Info.Answered <= 0 {
				t.Errorf("%d tries, not %d; proven after %v", tmpl.Info.Tries, c.tries, tmpl.Info.Answered)
			}
			if stored, err := s.Get(within(t), m); err != nil || stored.Info != tmpl.Info {
				t.Errorf("stored %+v, %v; built %+v", stored.Info, err, tmpl.Info)
			} else {
				stored.Close()
			}
		})
	}
}

// TestSilentProofEnds: a clone that never answers gets the time of the boot, at least two seconds.
func TestSilentProofEnds(t *testing.T) {
	t.Parallel()
	s, _, m := fakeStore(t)
	proofs := 0
	tmpl, err := s.Build(within(t), m, template.Guest{
		Ready: func(context.Context, hypervisor.VM) error { return nil },
		Answer: func(ctx context.Context, _ hypervisor.VM) error {
			if proofs++; proofs > 1 {
				return nil
			}
			<-ctx.Done()
			if why := context.Cause(ctx); !errors.Is(why, template.ErrUnfit) || !strings.Contains(why.Error(), "did not answer within 2s") {
				t.Errorf("it ended: %v", why)
			}
			return ctx.Err()
		},
	}, "test")
	if err != nil {
		t.Fatal(err)
	}
	tmpl.Close()
	if proofs != 2 {
		t.Errorf("%d proofs", proofs)
	}
}

// TestCondemn: a condemned template is removed, its successor has the reason, and an older template never condemns a
// newer one.
func TestCondemn(t *testing.T) {
	s, r, m := fakeStore(t)
	first, why, err := s.Ensure(within(t), m, guest)
	if err != nil || why == nil {
		t.Fatal(why, err)
	}
	defer first.Close()
	if !s.Current(first) {
		t.Error("the only template is not current")
	}
	if n, err := s.Condemn(within(t), first, "two clones were silent"); n != 1 || err != nil {
		t.Errorf("condemned %d: %v", n, err)
	}
	if s.Has(first.Info.Key) || s.Current(first) {
		t.Error("a condemned template still exists")
	}
	second, why, err := s.Ensure(within(t), m, guest)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if !strings.Contains(why.Error(), "two clones were silent") || second.Info.Condemned != 1 || second.Info.Reason != why.Error() {
		t.Errorf("built because %v, after %d; it says %q", why, second.Info.Condemned, second.Info.Reason)
	}
	if n, err := s.Condemn(within(t), first, "late"); n != 0 || err != nil || !s.Current(second) {
		t.Errorf("the newer one was condemned: %d, %v", n, err)
	}
	if n, err := s.Condemn(within(t), second, "again"); n != 2 || err != nil {
		t.Errorf("condemned %d: %v", n, err)
	}
	if err := s.Remove(within(t), first.Info.Key); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(r.Templates())
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
