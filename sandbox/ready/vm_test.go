package ready

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
)

// fakeVM is a VM with nothing but a connection to its guest.
type fakeVM struct {
	hypervisor.VM
	connect func() (net.Conn, error)
}

func (v fakeVM) Connect(context.Context) (net.Conn, error) { return v.connect() }

// newVM returns a VM with an agent that answers pings with pong.
func newVM(t *testing.T, pong func() (agentv1.Pong, error)) fakeVM {
	handlers := agentv1.Handlers{
		agentv1.OpPing: agentv1.Unary(func(context.Context, struct{}) (agentv1.Pong, error) { return pong() }),
	}
	return fakeVM{connect: func() (net.Conn, error) {
		near, far := net.Pipe()
		r, w := io.Pipe() // buffers one frame, so that both sides can write at the same time
		go io.Copy(far, r)
		t.Cleanup(func() { w.Close() })
		port := struct {
			io.Reader
			io.WriteCloser
		}{far, w}
		go channel.Serve(t.Context(), port, channel.Hello{}, func(c net.Conn) { agentv1.Serve(t.Context(), c, handlers) })
		return near, nil
	}}
}

// TestReady: a VM is ready when its agent answers; to be saved, its clock must be right too.
func TestReady(t *testing.T) {
	t.Parallel()
	boot := time.Now()
	lost := errors.New("lost")
	right := func() (agentv1.Pong, error) { return agentv1.Pong{Uptime: time.Since(boot)}, nil }
	stands := func() (agentv1.Pong, error) { return agentv1.Pong{}, nil }
	refuses := func() (agentv1.Pong, error) { return agentv1.Pong{}, agentv1.ErrBusy }
	for _, tc := range []struct {
		name  string
		ready func(context.Context, hypervisor.VM) error
		vm    fakeVM
		want  error
	}{
		{name: "an answer", ready: Answering, vm: newVM(t, stands)},
		{name: "a refusal", ready: Answering, vm: newVM(t, refuses), want: agentv1.ErrBusy},
		{name: "no connection", ready: Answering, vm: fakeVM{connect: func() (net.Conn, error) { return nil, lost }}, want: lost},
		{name: "a clone's answer", ready: Steady.Answer, vm: newVM(t, stands)},
		{name: "a right clock", ready: Steady.Ready, vm: newVM(t, right)},
		{name: "a clock that stands", ready: Steady.Ready, vm: newVM(t, stands), want: ErrClock},
		{name: "is unfit", ready: Steady.Ready, vm: newVM(t, stands), want: template.ErrUnfit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := tc.ready(t.Context(), tc.vm); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
}

// TestPatience: a clone must answer over its first connection; other VMs get further connections.
func TestPatience(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ready func(context.Context, hypervisor.VM) error
		once  bool
	}{
		{name: "a clone", ready: Steady.Answer, once: true},
		{name: "one to be saved", ready: Steady.Ready},
		{name: "another", ready: Answering},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			deaf := fakeVM{connect: func() (net.Conn, error) {
				n++
				near, far := net.Pipe()
				go io.Copy(io.Discard, far)
				return near, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := tc.ready(ctx, deaf); !errors.Is(err, context.DeadlineExceeded) || (n == 1) != tc.once {
				t.Errorf("%s: %d connections: %v", tc.name, n, err)
			}
		})
	}
}

// TestCompareClockEnds: the comparison ends with its context, or when the agent fails to answer again.
func TestCompareClockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := func(context.Context) (agentv1.Pong, error) { return agentv1.Pong{}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), clockSpan/2)
		defer cancel()
		if err := compareClock(ctx, answers, clockSpan); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of the context: %v", err)
		}
		lost := errors.New("lost")
		n := 0
		once := func(context.Context) (agentv1.Pong, error) {
			if n++; n > 1 {
				return agentv1.Pong{}, lost
			}
			return agentv1.Pong{}, nil
		}
		if err := compareClock(t.Context(), once, clockSpan); !errors.Is(err, lost) {
			t.Errorf("without a second answer: %v", err)
		}
	})
}
