// Package process runs a shim: bootstrap, confinement, VM, services, end.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	containerdlog "github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/boundedlog"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/policy"
)

const (
	bootstrapDeadline = 30 * time.Second
	adoptDeadline     = 30 * time.Second
	// cloneTimeout far exceeds the time that a clone needs, some 10 s with a dozen busy VMs per core. A clone that is
	// silent for so long never answers, and its pod gets another.
	cloneTimeout = 30 * time.Second
	lockDeadline = 2 * time.Second
	endDeadline  = 30 * time.Second
)

// Run runs a shim from start to end. It needs descriptor bootstrap.FD.
func Run() error {
	unix.Umask(0o077)
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP, unix.SIGINT)
	// Beyond the limit of limitFiles a write then fails, instead of ending the process. QEMU does not inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGXFSZ)
	stderr := boundedlog.New(os.Stderr, layout.LogLimit)
	log := slog.New(slog.NewTextHandler(stderr, nil))
	containerdlog.L.Logger.SetOutput(stderr) // ttrpc's log
	conn, err := bootstrap.Conn(os.NewFile(bootstrap.FD, "bootstrap"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := errors.Join(closeInherited(), limitFiles(), confine.NoCore()); err != nil {
		return err
	}
	return (&shim{host: thisHost, log: log, ended: make(chan string, 1)}).run(conn)
}

// run is Run after the setup of the process.
func (s *shim) run(conn *net.UnixConn) (err error) {
	_ = conn.SetDeadline(time.Now().Add(bootstrapDeadline))
	if s.m, s.files, err = bootstrap.Receive(conn); err != nil {
		return err
	}
	if err := s.up(); err != nil {
		_ = bootstrap.Answer(conn, err)
		return err
	}
	// The starter may send SIGTERM as soon as it has the answer.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(bootstrapDeadline))
	fault.Point("shim.served")
	if err := bootstrap.Answer(conn, nil); err != nil {
		// The starter has ended. Delete a new VM, because only the starter knew of it. Leave an adopted VM to the next
		// shim.
		if s.m.Adopt {
			s.down(term)
		} else {
			s.down(removed)
		}
		return err
	}
	conn.Close()
	s.down(s.wait(ctx))
	return nil
}

// up starts all parts, the VM first because it takes longest. On an error it leaves nothing behind.
func (s *shim) up() (err error) {
	// A shim that was just killed may hold the lock for some milliseconds more: the kernel closes its files after its
	// death becomes visible.
	ctx, cancel := context.WithTimeout(context.Background(), lockDeadline)
	defer cancel()
	lock, err := flock.Acquire(ctx, filepath.Join(s.m.StateDir, layout.Lock))
	if err != nil {
		return fmt.Errorf("become the shim of %s: %w", s.m.StateDir, err)
	}
	fault.Point("shim.locked")
	s.lock = lock // held until the process ends
	driver, programs, err := s.host.driver()
	if err != nil {
		return err
	}
	s.driver, s.libraries = driver, programs[1:]
	if err := s.prepare(); err != nil {
		return err
	}
	fault.Point("shim.prepared")
	if err := s.watch(); err != nil {
		// A user may have only about a hundred inotify instances in all programs. That must not bound the number of
		// pods.
		s.log.Warn("cannot watch the state directory: its removal will not end the VM", "error", err)
	}
	missing, err := s.host.confine(s.policy(programs[0]))
	if err != nil {
		return fmt.Errorf("confine the shim: %w", err)
	}
	if missing != nil {
		s.log.Warn("the kernel cannot fully confine the shim", "missing", missing)
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	fault.Point("shim.opened")
	if err := s.serve(); err != nil {
		s.down(failed)
		return err
	}
	return nil
}

// policy returns the shim's rights on the host: QEMU's, and the pod's own directories.
func (s *shim) policy(program string) confine.Policy {
	p := s.vmPolicy(program)
	p.Write = append(p.Write, s.m.StateDir)
	if s.m.DataDir != "" {
		p.Write = append(p.Write, s.m.DataDir)
	}
	return p
}

// vmPolicy returns QEMU's rights. It may reopen the kernel's files of a cold boot.
func (s *shim) vmPolicy(program string) confine.Policy {
	p := policy.VM(s.m.VM, program, s.libraries...)
	for _, name := range []string{bootstrap.Kernel, bootstrap.Initrd} {
		if f := s.files[name]; f != nil {
			p.ReadFiles = append(p.ReadFiles, f)
		}
	}
	return p
}

// Reasons of a shim's end.
const (
	asked   = "asked"   // ShutdownSandbox has deleted the sandbox
	removed = "removed" // the state directory is gone, so the VM must go too
	term    = "term"    // SIGTERM: the VM lives on for another shim
	failed  = "failed"  // the services could not be served
)

// requestEnd requests the end; only the first reason counts.
func (s *shim) requestEnd(why string) {
	select {
	case s.ended <- why:
	default:
	}
}

// wait returns the reason of the shim's end; ctx ends on SIGTERM.
func (s *shim) wait(ctx context.Context) string {
	select {
	case why := <-s.ended:
		return why
	case <-ctx.Done():
		return term
	}
}

// down stops the parts in the reverse order of up.
func (s *shim) down(why string) {
	s.log.Info("the shim ends", "why", why)
	ctx, cancel := context.WithTimeout(context.Background(), endDeadline)
	defer cancel()
	if s.sandbox != nil && (why == removed || why == failed && !s.m.Adopt) {
		if err := s.sandbox.Delete(ctx, true); err != nil {
			s.log.Error("delete the sandbox", "error", err)
		}
	}
	fault.Point("shim.ending")
	s.unserve(why == asked || why == removed)
	if s.sandbox != nil {
		if err := s.sandbox.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Error("close the sandbox", "error", err)
		}
	}
}
