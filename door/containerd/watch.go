package containerd

import (
	"context"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/door/containerd/events"
)

// watch waits for the end of a process that the Runtime has made, and publishes it.
func (s *Services) watch(t *task, p *process) {
	if exit, ok := s.await(p); ok {
		s.publishExit(t, p, exit)
	}
}

// watchTask is watch for a task's first process. The exits of its execs come first, because clients forget the task then.
func (s *Services) watchTask(t *task) {
	exit, ok := s.await(&t.process)
	if !ok {
		return
	}
	grace, cancel := context.WithTimeout(s.ctx, execsGrace)
	defer cancel()
	for _, e := range t.running() {
		if e.awaitEnd(grace) != nil {
			break
		}
	}
	s.record(t, exit)
	s.publishExit(t, &t.process, exit)
}

// record writes the process id, and its exit if it has ended, for the action delete of the program.
func (s *Services) record(t *task, exit Exit) {
	e := bootstrap.Exit{PID: t.pid, Status: exit.Status, At: exit.At}
	if err := bootstrap.RecordExit(t.bundle, e); err != nil {
		s.o.Log.Warn("record the exit", "task", t.container, "error", err)
	}
}

// await returns the end of a process, or false if the services are closed first.
func (s *Services) await(p *process) (Exit, bool) {
	exit, err := p.handle.Wait(s.ctx)
	if s.ctx.Err() != nil {
		return Exit{}, false
	}
	if err != nil {
		s.o.Log.Error("wait for a process: it counts as killed", "task", p.container, "process", p.id, "error", err)
		exit = Exit{Status: bootstrap.Lost, At: time.Now()}
	}
	return exit, true
}

// publishExit records and publishes the end of a process, after its start.
func (s *Services) publishExit(t *task, p *process, exit Exit) {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	if exit.OOM && p == &t.process {
		s.o.Events.Publish(events.OOM, &eventsapi.TaskOOM{ContainerID: t.container})
	}
	_, pid := p.end()
	s.o.Events.Publish(events.Exit, &eventsapi.TaskExit{
		ContainerID: t.container, ID: p.id, Pid: uint32(pid), ExitStatus: uint32(exit.Status), ExitedAt: timestamppb.New(exit.At),
	})
	s.closeLater(p.ended(exit))
}
