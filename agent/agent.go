// Package agent is process 1 of the guest. It sets the guest up, serves api/agent/v1 over the channel, and runs the
// pod's containers with crun.
//
// A VM is a clone of one that was saved while the agent waited for its first call. So nothing before Configure may be
// random or specific to a VM. The agent itself uses only the kernel's random numbers, which Configure renews.
package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/clock"
	"github.com/bulkhead-project/bulkhead/agent/internal/crun"
	"github.com/bulkhead-project/bulkhead/agent/internal/devices"
	"github.com/bulkhead-project/bulkhead/agent/internal/disks"
	"github.com/bulkhead-project/bulkhead/agent/internal/files"
	"github.com/bulkhead-project/bulkhead/agent/internal/holder"
	"github.com/bulkhead-project/bulkhead/agent/internal/launcher"
	"github.com/bulkhead-project/bulkhead/agent/internal/limits"
	"github.com/bulkhead-project/bulkhead/agent/internal/listening"
	"github.com/bulkhead-project/bulkhead/agent/internal/oom"
	"github.com/bulkhead-project/bulkhead/agent/internal/pod"
	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/agent/internal/scratch"
	"github.com/bulkhead-project/bulkhead/agent/internal/shares"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
)

// crun's program and state, and the containers' directories. The directories are in memory.
const (
	crunProgram   = "/usr/bin/crun"
	crunState     = "/run/crun"
	launchProgram = "/usr/bin/bulkhead-launcher"
	containerDir  = "/run/bulkhead/containers"
)

// Agent is the guest's state.
type Agent struct {
	reaper *reaper.Reaper
	crun   *crun.Runtime

	pod *pod.Pod

	mu         sync.Mutex // guards the following; never held while waiting
	containers map[string]*container

	limits limits.Limits

	files   *files.Singles // of specifications
	volumes files.Volumes

	ports listening.Watch
	ooms  oom.Watch

	shares shares.Shares // of the host's directories

	programs devices.Programs

	disks disks.Disks
	space *scratch.Space // for the pod's writes

	holder *holder.Holder // of the pod's process namespace
}

// Main runs process 1. It returns only with an error; the VM is unusable then.
func Main(build string) error {
	port, card, err := boot.Setup(agentv1.Port)
	if err != nil {
		return fmt.Errorf("set up the guest: %w", err)
	}
	if err := calmMonitor(monitorSlack, max(processors, runtime.NumCPU())); err != nil {
		return err
	}
	r := reaper.New()
	go r.Run()
	runtime, err := crun.New(crunProgram, crunState, r)
	if err != nil {
		return err
	}
	if l, err := launcher.Start(launchProgram, r); err != nil {
		Log("crun starts all processes: %v", err)
	} else {
		runtime.Launch(l, Log)
	}
	a := &Agent{
		reaper: r, crun: runtime, holder: holder.New(r),
		containers: map[string]*container{},
		files:      files.NewSingles(pod.FilesDir),
	}
	a.space = scratch.New(&a.disks, Log)
	if a.pod, err = pod.New(card, runtime.Version, &a.limits, a.space); err != nil {
		return err
	}
	fd, err := unix.Open(port, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the channel's port %s: %w", port, err)
	}
	handlers := a.handlers()
	hello := channel.Hello{Version: agentv1.Version, Build: build}
	return channel.Serve(context.Background(), os.NewFile(uintptr(fd), port), hello, func(conn net.Conn) {
		if err := agentv1.Serve(context.Background(), conn, handlers); err != nil {
			Log("call: %v", err)
		}
	})
}

// HolderName is the name of the process that runs Hold.
const HolderName = holder.Name

// Hold runs the process that holds the pod's process namespace. It returns only with an error.
func Hold() error {
	return fmt.Errorf("hold a process namespace: %w", holder.Run())
}

// none is an empty body or answer.
type none struct{}

// act returns do as a call with an empty answer.
func act[T any](do func(context.Context, T) error) func(context.Context, T) (none, error) {
	return func(ctx context.Context, request T) (none, error) { return none{}, do(ctx, request) }
}

func (a *Agent) handlers() agentv1.Handlers {
	return agentv1.Handlers{
		agentv1.OpConfigure: agentv1.Unary(a.pod.Configure),
		agentv1.OpSetTime:   agentv1.Unary(act(clock.Set)),
		agentv1.OpAdjust:    agentv1.Unary(act(clock.Adjust)),
		agentv1.OpPing:      agentv1.Unary(clock.Ping),
		agentv1.OpMemory:    agentv1.Unary(memory),
		agentv1.OpMount:     agentv1.Unary(act(a.mount)),
		agentv1.OpUnmount:   agentv1.Unary(act(a.unmount)),
		agentv1.OpGrow:      agentv1.Unary(act(a.disks.Grow)),
		agentv1.OpFlush:     agentv1.Unary(act(func(context.Context, none) error { unix.Sync(); return nil })),
		agentv1.OpCreate:    agentv1.Unary(a.create),
		agentv1.OpStart:     agentv1.Unary(act(a.start)),
		agentv1.OpExec:      agentv1.Unary(a.exec),
		agentv1.OpSignal:    agentv1.Unary(a.signal),
		agentv1.OpWait:      agentv1.Waiting(a.wait),
		agentv1.OpDelete:    agentv1.Unary(a.delete),
		agentv1.OpResize:    agentv1.Unary(a.resize),
		agentv1.OpPause:     agentv1.Unary(act(func(ctx context.Context, r agentv1.Process) error { return a.freeze(ctx, r.Container, true) })),
		agentv1.OpResume:    agentv1.Unary(act(func(ctx context.Context, r agentv1.Process) error { return a.freeze(ctx, r.Container, false) })),
		agentv1.OpUpdate:    agentv1.Unary(act(a.update)),
		agentv1.OpStats:     agentv1.Unary(a.stats),
		agentv1.OpPids:      agentv1.Unary(a.pids),
		agentv1.OpList:      agentv1.Unary(a.list),
		agentv1.OpReadFile:  agentv1.Unary(a.readFile),
		agentv1.OpFiles:     agentv1.Unary(a.volumes.Write),
		agentv1.OpOutput:    a.output,
		agentv1.OpInput:     a.input,
		agentv1.OpNoReader:  agentv1.Unary(act(a.noReader)),
		agentv1.OpForward:   a.forward,
		agentv1.OpPack:      a.pack,
		agentv1.OpUnpack:    a.unpack,
		agentv1.OpUsage:     agentv1.Unary(a.usage),
		agentv1.OpNetwork:   agentv1.Unary(act(a.pod.SetNetwork)),
		agentv1.OpListening: agentv1.Waiting(a.listening),
		agentv1.OpDatagrams: a.datagrams,
		agentv1.OpResolver:  a.pod.Resolve,
		agentv1.OpOOMKills:  agentv1.Waiting(a.oomKills),
	}
}

// Log writes a line to the kernel's log, and so to the console that the host keeps for diagnosis.
func Log(format string, args ...any) {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		f = os.Stderr
	} else {
		defer f.Close()
	}
	fmt.Fprintf(f, "<3>bulkhead-agent: "+format+"\n", args...)
}
