package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/events"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/lease"
	"github.com/bulkhead-project/bulkhead/shim/service"
	"github.com/bulkhead-project/bulkhead/shim/steps"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// shim is the state of the process.
type shim struct {
	host  host
	m     bootstrap.Message
	files map[string]*os.File
	log   *slog.Logger
	lock  *flock.Lock
	ended chan string

	driver hypervisor.Driver
	// libraries are the files that QEMU loads beside its program.
	libraries []string
	console   *os.File         // receives the VM's console
	follow    *service.Console // serves the console to clients
	sandbox   *sandbox.Sandbox
	sealed    bool // set before the VM's first byte is read, by one goroutine

	hub       events.Hub
	store     fdpass.Store
	streams   *stream.Server
	leases    *lease.Server
	services  *service.Services
	server    *ttrpc.Server
	calls     calls
	listeners []*net.UnixListener
}

// open creates the sandbox, or restores the existing one.
func (s *shim) open() (err error) {
	s.console, err = os.OpenFile(s.path(layout.Console), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the console log: %w", err)
	}
	if s.follow, err = service.OpenConsole(s.path(layout.Console)); err != nil {
		return err
	}
	o := sandbox.Options{
		ID: s.m.ID, StateDir: s.m.StateDir, Logger: s.log,
		StartVM: s.start, Adopt: s.adopt,
		Events: service.OnEvent(s.m.ID, &s.hub, s.log),
	}
	o.Mounted = s.m.Copy != nil
	if s.m.Clone {
		o.BootTimeout, o.Patience = cloneTimeout, s.m.Patience
	}
	if !s.m.Adopt {
		s.sandbox, err = sandbox.New(o)
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adoptDeadline)
	defer cancel()
	s.sandbox, err = sandbox.Restore(ctx, o, s.restoreFiles())
	return err
}

func (s *shim) restoreFiles() sandbox.RestoreFiles {
	r := sandbox.RestoreFiles{Scratch: s.files[bootstrap.Scratch], Logs: map[string]*os.File{}}
	delete(s.files, bootstrap.Scratch)
	for name, f := range s.files {
		if id, ok := strings.CutPrefix(name, bootstrap.LogPrefix); ok {
			r.Logs[id] = f
			delete(s.files, name)
		}
	}
	return r
}

// start is the sandbox's Starter. It clones if there is a template, else it boots.
func (s *shim) start(ctx context.Context) (hypervisor.VM, error) {
	if s.sealed {
		return nil, errors.New("a shim starts only one VM: adopt the sandbox, and its new shim starts the next")
	}
	if s.m.Copy != nil {
		return s.adoptCopy(ctx)
	}
	dir := s.path(layout.VM)
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("clear the VM's directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the VM's directory: %w", err)
	}
	o := hypervisor.Options{
		Dir: dir, Name: s.name(), Start: s.spawn,
		Connections: connections, Opened: s.seal,
	}
	files := hypervisor.Files{
		Memory: s.files[bootstrap.Memory], State: s.files[bootstrap.State], Console: s.console, Tap: s.files[bootstrap.Tap],
	}
	if files.Memory != nil {
		return s.driver.Clone(ctx, s.m.VM, files, o)
	}
	// The owner may have no access to the kernel's path, so it came as a file.
	m := s.m.VM
	m.Kernel, m.Initrd = reopenPath(s.files[bootstrap.Kernel], m.Kernel), reopenPath(s.files[bootstrap.Initrd], m.Initrd)
	return s.driver.Boot(ctx, m, files, o)
}

// adoptCopy adopts the VM that was copied for this shim, and resumes it.
func (s *shim) adoptCopy(ctx context.Context) (hypervisor.VM, error) {
	v, err := s.adopt(ctx, *s.m.Copy)
	if err != nil {
		return nil, err
	}
	if err := v.Resume(ctx); err != nil {
		return nil, errors.Join(err, v.Kill(ctx), v.Close())
	}
	return v, nil
}

// name is the name of the VM's process. The engine chose the pod's id in it.
func (s *shim) name() string { return layout.VMName(s.m.ID) }

// spawn starts QEMU with fewer rights than the shim.
func (s *shim) spawn(cmd *exec.Cmd) error {
	missing, err := s.host.spawn(cmd, s.vmPolicy(cmd.Path))
	if err != nil {
		return err
	}
	if missing != nil {
		s.log.Warn("the kernel cannot fully confine the VM", "missing", missing)
	}
	return nil
}

func reopenPath(f *os.File, path string) string {
	if f == nil {
		return path
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd())
}

func (s *shim) adopt(ctx context.Context, r hypervisor.Record) (hypervisor.VM, error) {
	o := hypervisor.Options{Name: s.name(), Connections: connections, Opened: s.seal}
	r.Dir = s.path(layout.VM) // ignore the value in the state
	return s.driver.Adopt(ctx, r, hypervisor.Files{Console: s.console}, o)
}

// connections bounds the connections to the guest for the shim's life. They cover the first one, the repetitions for a
// guest that answers late, and a few that a guest breaks. When the shim dies, the guest sees all of them open and
// close. It may miss the last change after 32 of them.
const connections = 8

// seal is called before the first byte from the VM is read. A guest that takes over the shim through its bytes then
// cannot reach other sockets of the shim's user.
func (s *shim) seal(vm procid.ID) error {
	s.sealed = true
	if err := s.host.seal(vm.PID); err != nil {
		return fmt.Errorf("seal the shim: %w", err)
	}
	return nil
}

// listen opens the shim's sockets. Clients are served once serve is called.
func (s *shim) listen() error {
	// A client that sees the API socket also finds the others.
	for _, name := range []string{layout.Files, layout.Stream, layout.Host, layout.API} {
		// A dead shim may have left the socket; the directory's lock proves that it is dead.
		listen := podsock.Listen
		if name == layout.Host { // the engine may let a surrogate's group use it
			listen = podsock.ListenGroup
		}
		l, err := listen(s.path(name))
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

// serve serves the sockets that listen has opened.
func (s *shim) serve() (err error) {
	var traced steps.Store
	if s.server, err = ttrpc.NewServer(ttrpc.WithUnaryServerInterceptor(traced.Intercept)); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	s.streams = stream.NewServer()
	s.services = service.New(service.Options{
		ID: s.m.ID, Sandbox: s.sandbox, Hub: &s.hub, Files: &s.store, Streams: s.streams,
		StreamAddress: s.path(layout.Stream), Console: s.follow,
		Accel: string(s.m.VM.Accel), Clone: s.m.Clone, Logger: s.log,
		Shutdown: func() { s.requestEnd(asked) }, Steps: &traced,
	})
	s.services.Register(s.server)
	s.leases = lease.New(lease.Options{Sandbox: s.sandbox, Discard: s.services.Discard, Logger: s.log})
	files, streams, host, api := s.listeners[0], s.listeners[1], s.listeners[2], s.listeners[3]
	go s.receiveFiles(files)
	go func() {
		if err := s.streams.Serve(streams); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Error("serve streams", "error", err)
		}
	}()
	go s.leases.Serve(host)
	go func() {
		err := s.server.Serve(context.Background(), s.calls.listen(api))
		if err != nil && !errors.Is(err, ttrpc.ErrServerClosed) {
			s.log.Error("serve", "error", err)
			s.requestEnd(term)
		}
	}()
	return nil
}

// answerPatience bounds the time in which the answers to running calls, including ShutdownSandbox, are sent and read.
const answerPatience = 300 * time.Millisecond

// unserve closes the services. It first waits for pending answers and, if the VM is gone, for the last output of
// attached clients.
func (s *shim) unserve(gone bool) {
	s.hub.Close()
	if s.services != nil {
		s.services.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	if s.server != nil {
		s.calls.wait(ctx)
		s.server.Close()
	}
	for _, l := range s.listeners {
		l.Close()
	}
	if s.streams != nil {
		if gone {
			s.streams.Drain(ctx)
		}
		s.streams.Close()
	}
	if s.leases != nil {
		if gone {
			s.leases.Drain(ctx)
		}
		s.leases.Close()
	}
	s.store.Close()
}

const acceptPause = 100 * time.Millisecond

func (s *shim) receiveFiles(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // most likely out of descriptors; there is no event for a free one
			s.log.Warn("accept a connection for a file", "error", err)
			<-time.After(acceptPause)
			continue
		}
		// Serve one at a time: a client sends one file in one message, within seconds.
		if err := s.store.Receive(conn); err != nil {
			s.log.Warn("receive a file", "error", err)
		}
	}
}

func (s *shim) path(name string) string { return filepath.Join(s.m.StateDir, name) }
