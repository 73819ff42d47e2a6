package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/network"
)

// startTimeout bounds the start of a pod, including the building of a template and a cold boot under emulation.
const startTimeout = 5 * time.Minute

// StartPod creates and starts a pod and returns its id. Clients see the pod when it is ready; a failed start leaves
// nothing. A request for a key that is being started joins that start. For a ready pod StartPod returns its id.
// When ctx ends, the start continues unless r.GiveUp is set.
func (e *Engine) StartPod(ctx context.Context, r PodRequest) (string, error) {
	if err := e.check(&r); err != nil {
		return "", failure.Wrap(err, "pod %s", r.Identity.Name)
	}
	start := func(start context.Context) (string, error) {
		start, cancel := context.WithTimeout(start, startTimeout)
		defer cancel()
		if r.GiveUp {
			defer context.AfterFunc(ctx, func() {
				if givenUp(ctx) {
					cancel()
				}
			})()
		}
		done, err := e.admit(start)
		if err != nil {
			return "", err
		}
		defer done()
		return e.startPod(start, r)
	}
	id, err := e.do(ctx, "pod "+r.Key, start)
	for errors.Is(err, errNoStart) { // another caller waited for a start, and this call was mistaken for that
		id, err = e.do(ctx, "pod "+r.Key, start)
	}
	if err == nil || !r.GiveUp || !givenUp(ctx) {
		return id, err
	}
	// This returns after the undo, or returns the id if the pod is ready already.
	if id, err = e.awaitStart(context.WithoutCancel(ctx), r.Key); errors.Is(err, errNoStart) {
		err = failure.Wrap(ctx.Err(), "start pod %s", r.Identity.Name)
	}
	return id, err
}

// errNoStart says that no pod with the key is ready or starting.
var errNoStart = errors.New("no start is in progress")

// givenUp reports whether ctx was cancelled. It returns false for an expired deadline.
func givenUp(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func (e *Engine) startPod(ctx context.Context, r PodRequest) (string, error) {
	if id, err := e.existing(r.Key); id != "" || err != nil {
		return id, err
	}
	p, err := e.plan(ctx, r)
	if err != nil {
		return "", failure.Wrap(err, "pod %s", r.Identity.Name)
	}
	begun := time.Now()
	b := &building{e: e, plan: p, begun: begun, mark: begun}
	made, err := b.build(ctx)
	var fork *building // the failed fork
	for tries := 1; tries < startTries && ctx.Err() == nil && b.mayRetry(err); tries++ {
		e.log.Warn("a VM failed to start; the pod gets another one", "pod", r.Key, "forked", b.record.Forked, "error", err)
		if b.record.Forked {
			fork = b
		} else {
			e.kinds.VMs.Failed(ctx, b.record.VM, b.record.Template, err)
		}
		e.starting(b.record.ID, false)
		b = &building{e: e, plan: p, begun: begun, mark: time.Now(), alone: true}
		made, err = b.build(ctx)
	}
	if err == nil {
		e.hold(made)
	}
	e.starting(b.record.ID, false)
	b.observe(err)
	if err != nil {
		failed := &failure.Error{Text: "run pod " + r.Identity.Name, Err: err, More: b.console}
		e.log.Warn("pod failed to start", "pod", r.Key, "error", failed, "detail", failed.Detail())
		return "", failed
	}
	e.log.Info("pod started", "pod", r.Key, "id", made.id, "took", time.Since(b.begun))
	e.emit(Started, made, made.id)
	e.spawn(made.watchShim)
	if fork != nil { // the fork is at fault only if another VM can start the pod
		e.kinds.Parents.Failed(p.key(), fork.cloned)
	}
	if !p.Cold && !p.NoFork && e.kinds.Parents != nil {
		e.kinds.Parents.Want(p.key())
	}
	return made.id, nil
}

// startTries is how many VMs a start may try. After two failed clones, the third comes from another template.
const startTries = 3

// mayRetry reports whether another VM may succeed: a clone after a failed fork, or another clone if one never
// answers.
func (b *building) mayRetry(err error) bool {
	return err != nil && (b.record.Forked || !b.plan.Cold && grpccode.Of(err) == codes.DeadlineExceeded)
}

// AwaitStart waits for the end of the start of the pod with a key, if one is in progress, whatever its result. The error is
// ctx's.
func (e *Engine) AwaitStart(ctx context.Context, key string) error {
	_, _ = e.awaitStart(ctx, key)
	return ctx.Err()
}

// awaitStart waits as AwaitStart does and returns the id of the ready pod, or errNoStart.
func (e *Engine) awaitStart(ctx context.Context, key string) (string, error) {
	return e.do(ctx, "pod "+key, func(context.Context) (string, error) {
		id, err := e.existing(key)
		if id == "" && err == nil {
			err = errNoStart
		}
		return id, err
	})
}

// building is a pod during its start.
type building struct {
	e    *Engine
	plan *plan
	undo undo.Stack

	record   store.Pod
	conn     *link.Conn
	attached network.Attachment
	console  string // the last lines of the console, after a failed step
	alone    bool   // not a fork

	notForked measure.NotForked

	from *pod // the stopped pod that gives its disk to this one, or nil

	begun, mark time.Time
	cloned      time.Time // when the start of its VM had begun
}

// build runs all steps. Each registers its undo first, on the stack or in the pod's journal.
func (b *building) build(ctx context.Context) (made *pod, err error) {
	defer func() {
		if err != nil {
			b.console = b.e.consoleTail(b.record.ID)
		}
		if b.conn != nil && err != nil {
			_ = b.conn.Close()
		}
		b.undo.OnError(ctx, &err)
	}()
	b.from = b.e.predecessor(b.plan)
	b.record.ID = store.NewID()
	b.e.starting(b.record.ID, true)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"reserve", b.reserve},
		{"store", b.store},
		{"network", b.attach},
		{"shim", b.start},
		{"address", b.address},
		{"create", b.create},
		{"start", b.boot},
		{"publish", b.forward},
	} {
		if err := ctx.Err(); err != nil {
			return nil, failure.Wrap(err, "%s", step.name)
		}
		if err := step.do(ctx); err != nil {
			return nil, err
		}
		fault.Point("run." + step.name)
		b.timing(step.name)
	}
	made, err = b.finish()
	if err == nil {
		if err := b.closeNetwork(); err != nil {
			b.e.log.Warn("close a pod's ports", "pod", b.plan.Key, "error", err)
		}
	}
	return made, err
}

func (b *building) timing(name string) {
	now := time.Now()
	b.record.Phases = append(b.record.Phases, store.Timing{Name: name, Took: now.Sub(b.mark)})
	b.mark = now
}

func (b *building) reserve(context.Context) error {
	key, id := b.plan.Key, b.record.ID
	b.undo.Push("name", func(context.Context) error { return b.e.store.Release(key, id) })
	err := b.e.store.Reserve(key, id)
	return failure.Wrap(err, "reserve")
}

// closeNetwork closes the engine's copies. The shim and the VM have their own.
func (b *building) closeNetwork() error {
	var errs []error
	for _, l := range b.attached.Listeners {
		errs = append(errs, l.Close())
	}
	b.attached.Listeners = nil
	if b.attached.Tap != nil {
		errs = append(errs, b.attached.Tap.Close())
		b.attached.Tap = nil
	}
	errs = append(errs, network.CloseCards(b.attached.Cards))
	b.attached.Cards = nil
	return errors.Join(errs...)
}

// store creates the pod's directory and writes its record.
func (b *building) store(ctx context.Context) error {
	b.undo.Push("sandbox", func(ctx context.Context) error { return b.e.unwinder.Undo(ctx, b.record.ID) })
	if err := b.e.store.MakePod(b.record.ID); err != nil {
		return failure.Wrap(err, "store")
	}
	b.record.Key, b.record.Phase, b.record.Record, b.record.Overhead = b.plan.Key, store.Starting, b.plan.Record, b.plan.Overhead
	b.record.Cgroup.Parent = b.plan.CgroupParent
	b.record.UID, b.record.Ring = b.plan.Identity.UID, true
	b.record.Title = b.plan.Identity.Namespace + "/" + b.plan.Identity.Name
	b.record.Created, b.record.VM, b.record.MemoryMiB = time.Now(), b.plan.vm, b.plan.memory
	b.record.Asked = &b.plan.Size
	b.record.HostPorts = b.plan.Network == network.KindHost
	b.record.AccelNote, b.record.NetNote = b.plan.note, b.plan.netNote
	if err := b.e.store.PutPod(&b.record); err != nil {
		return failure.Wrap(err, "store")
	}
	if err := b.inherit(ctx); err != nil {
		return err
	}
	return b.logDirectory()
}

// predecessor returns the newest stopped pod with the plan's UID and a disk with emptyDirs. It returns nil if
// another pod of the UID is not stopped.
func (e *Engine) predecessor(next *plan) *pod {
	if next.Identity.UID == "" {
		return nil
	}
	door, _ := (&Pod{Key: next.Key}).Door()
	var last *pod
	for _, p := range e.all() {
		r := p.snapshot()
		if of, _ := (&Pod{Key: r.Key}).Door(); r.UID != next.Identity.UID || of != door {
			continue
		}
		if r.Phase != store.Stopped {
			return nil
		}
		if r.Volumes && e.disks.Has(p.id) && (last == nil || last.snapshot().Created.Before(r.Created)) {
			last = p
		}
	}
	return last
}

// inherit takes over the predecessor's disk with its emptyDirs. It runs before the start of the shim, so that a
// failed start returns the disk after its VM has ended.
func (b *building) inherit(ctx context.Context) error {
	if b.from == nil {
		return nil
	}
	if err := b.from.acquire(ctx); err != nil {
		return err
	}
	defer b.from.done()
	err := b.e.disks.Transfer(ctx, b.from.id, b.record.ID, b.plan.scratchSize())
	if errors.Is(err, disks.ErrSize) {
		b.e.log.Warn("a pod starts with empty emptyDirs", "pod", b.plan.Key, "error", err)
		return nil
	}
	b.record.Volumes = true
	return failure.Wrap(err, "take the scratch disk over")
}

// logDirectory creates the directory of the containers' logs. If the start fails, an empty directory is removed
// again.
func (b *building) logDirectory() error {
	dir := b.plan.LogDirectory
	if dir == "" {
		return nil
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		b.undo.Push("log directory", func(context.Context) error {
			// It may be in use or removed by now.
			_ = os.Remove(filepath.Clean(dir))
			return nil
		})
	}
	root, name, err := b.e.paths.Open(dir)
	if err != nil {
		return failure.Wrap(err, "create the log directory")
	}
	defer root.Close()
	return failure.Wrap(root.MkdirAll(name, 0o755), "create the log directory")
}

// totalPhase is the sum of all phases.
const totalPhase = "total"

// finish stores the pod as ready.
func (b *building) finish() (*pod, error) {
	b.record.Phase = store.Ready
	b.record.Phases = append(b.record.Phases, store.Timing{Name: totalPhase, Took: time.Since(b.begun)})
	if err := b.e.store.PutPod(&b.record); err != nil {
		return nil, failure.Wrap(err, "store")
	}
	fault.Point("run.ready")
	p := newPod(b.e, &b.record)
	p.conn = b.conn
	p.publishDatagrams(b.attached.Listeners)
	b.attached.Listeners = slices.DeleteFunc(b.attached.Listeners, func(l network.Listener) bool { return l.UDP != nil })
	return p, nil
}
