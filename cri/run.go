package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/network"
)

// startTimeout bounds the start of a pod, the building of a template and a
// cold boot under emulation included.
const startTimeout = 5 * time.Minute

// RunPodSandbox makes and starts a pod and returns its id. The pod is seen by
// nobody before it is ready, and nothing is left of one that fails. A request
// for a name and attempt that is being started joins that start; for one that
// is ready it returns its id. The end of ctx ends the wait and not the start.
func (s *Service) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := s.checkPod(config, handler); err != nil {
		return "", err
	}
	config = proto.CloneOf(config)
	return s.do(ctx, "pod "+podKey(config.GetMetadata()), func(ctx context.Context) (string, error) {
		done, err := s.admit(ctx)
		if err != nil {
			return "", err
		}
		defer done()
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		return s.runPod(ctx, config, handler)
	})
}

func (s *Service) runPod(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if id, err := s.existing(podKey(config.GetMetadata())); id != "" || err != nil {
		return id, err
	}
	p, err := s.plan(ctx, config, handler)
	if err != nil {
		return "", err
	}
	begun := time.Now()
	b := &building{s: s, plan: p, begun: begun, mark: begun}
	made, err := b.build(ctx)
	if err != nil && ctx.Err() == nil && (b.record.WasPooled || !p.cold && code(err) == codes.DeadlineExceeded) {
		// Whatever is wrong with a member of the pool, or with a clone that
		// never answers, is no fault of the pod's.
		s.log.Warn("a machine failed its pod, which gets another", "pod", p.key, "pooled", b.record.WasPooled, "error", err)
		s.work(b.record.ID, false)
		b = &building{s: s, plan: p, begun: begun, mark: time.Now(), alone: true}
		made, err = b.build(ctx)
	}
	if err == nil {
		s.hold(made)
	}
	s.work(b.record.ID, false)
	if err != nil {
		failed := &Error{Code: code(err), Text: "run pod " + config.GetMetadata().GetName(), Err: err, More: b.console}
		s.log.Warn("pod failed to start", "pod", p.key, "error", failed, "detail", failed.Detail())
		return "", failed
	}
	s.log.Info("pod started", "pod", p.key, "id", made.id, "took", time.Since(b.begun))
	s.announce(made)
	if !p.cold {
		s.pool.want(p.kind())
	}
	return made.id, nil
}

// existing is the id of the ready pod that has the name already.
func (s *Service) existing(key string) (string, error) {
	for _, p := range s.all() {
		r := p.snapshot()
		switch {
		case r.Key != key:
		case r.Phase == store.Ready && r.Exit == "":
			return p.id, nil
		default:
			return "", errorf(codes.AlreadyExists, "pod %s: a stopped one (%s) has the name and attempt: remove it, or use the next attempt", key, short(p.id))
		}
	}
	return "", nil
}

// building is a pod that is being made.
type building struct {
	s    *Service
	plan *plan
	undo undo.Stack

	record   store.Pod
	conn     *conn
	attached network.Attachment
	console  string // its last lines, when a step failed
	alone    bool   // not from the pool

	begun, mark time.Time
}

// build goes through all steps; each registers its undo, on the stack or in
// the pod's journal, before it is done.
func (b *building) build(ctx context.Context) (made *pod, err error) {
	defer func() {
		if err != nil {
			b.console = b.s.consoleTail(b.record.ID)
		}
		if b.conn != nil && err != nil {
			_ = b.conn.close()
		}
		b.undo.OnError(ctx, &err)
	}()
	member := b.takeMember(ctx)
	if member == nil {
		b.record.ID = store.NewID()
		b.s.work(b.record.ID, true)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"reserve", b.reserve},
		{"store", b.store},
		{"network", b.attach},
		{"shim", b.start},
		{"create", b.create},
		{"start", b.boot},
		{"publish", b.forward},
	} {
		if member != nil && step.name == "shim" {
			continue // the member has one
		}
		if err := ctx.Err(); err != nil {
			return nil, fail(err, "%s", step.name)
		}
		if err := step.do(ctx); err != nil {
			return nil, err
		}
		fault.Point("run." + step.name)
		b.timing(step.name)
	}
	b.closeListeners()
	return b.finish()
}

func (b *building) timing(name string) {
	now := time.Now()
	b.record.Phases = append(b.record.Phases, store.Timing{Name: name, Took: now.Sub(b.mark)})
	b.mark = now
}

func (b *building) takeMember(ctx context.Context) *member {
	if b.plan.cold || b.alone || b.plan.scratchSize() != defaultScratch {
		return nil // a member's disk is of the default size
	}
	m := b.s.pool.take(ctx, b.plan.kind())
	if m == nil {
		return nil
	}
	// From here on the member is this pod's to undo.
	b.record, b.conn, b.attached = m.record, m.conn, m.attached
	b.record.Phases = nil
	b.record.WasPooled = true
	b.undo.Push("pooled machine", func(ctx context.Context) error { return b.s.pool.drop(ctx, m) })
	return m
}

func (b *building) reserve(context.Context) error {
	key, id := b.plan.key, b.record.ID
	b.undo.Push("name", func(context.Context) error { return b.s.store.Release(key, id) })
	err := b.s.store.Reserve(key, id)
	return fail(err, "reserve")
}

// closeListeners closes the engine's copies: the shim has its own.
func (b *building) closeListeners() {
	for _, l := range b.attached.Listeners {
		l.Close()
	}
	b.attached.Listeners = nil
}

// store makes the pod's place on disk and writes what it is to be.
func (b *building) store(context.Context) error {
	raw, err := protojson.Marshal(b.plan.config)
	if err != nil {
		return invalid("encode the configuration: %v", err)
	}
	if !b.record.WasPooled {
		b.undo.Push("sandbox", func(ctx context.Context) error { return b.s.unwind(ctx, b.record.ID) })
		if err := b.s.store.MakePod(b.record.ID); err != nil {
			return fail(err, "store")
		}
	}
	poolKey := b.record.Key
	b.record.Key, b.record.Phase, b.record.Config, b.record.Handler = b.plan.key, store.Starting, raw, b.plan.handler
	b.record.Created, b.record.Machine, b.record.MemoryMiB = time.Now(), b.plan.machine, b.plan.memory
	b.record.AccelNote, b.record.NetNote = b.plan.note, b.plan.netNote
	b.s.limitGroup(&b.record, memoryLimits(b.plan.memory, b.plan.overhead)) // of the pool's machine, which is to grow
	if err := b.s.store.PutPod(&b.record); err != nil {
		return fail(err, "store")
	}
	if poolKey != "" {
		if err := b.s.store.Release(poolKey, b.record.ID); err != nil {
			return fail(err, "store")
		}
	}
	return b.logDirectory()
}

// logDirectory makes the directory of the containers' logs; one that was made
// and is empty goes with a pod that fails.
func (b *building) logDirectory() error {
	dir := b.plan.config.GetLogDirectory()
	if dir == "" {
		return nil
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		b.undo.Push("log directory", func(context.Context) error {
			// Not empty any more, or gone: somebody else's business.
			_ = os.Remove(filepath.Clean(dir))
			return nil
		})
	}
	root, name, err := b.s.hostPath(dir)
	if err != nil {
		return fail(err, "make the log directory")
	}
	defer root.Close()
	return fail(root.MkdirAll(name, 0o755), "make the log directory")
}

// finish makes the pod whole.
func (b *building) finish() (*pod, error) {
	b.record.Phase = store.Ready
	b.record.Phases = append(b.record.Phases, store.Timing{Name: "total", Took: time.Since(b.begun)})
	if err := b.s.store.PutPod(&b.record); err != nil {
		return nil, fail(err, "store")
	}
	fault.Point("run.ready")
	p, err := newPod(b.s, &b.record)
	if err != nil {
		return nil, err
	}
	p.conn = b.conn
	return p, nil
}

// announce tells of a new pod, and follows it.
func (s *Service) announce(p *pod) {
	s.events.emit(p, p.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	s.spawn(p.follow)
}
