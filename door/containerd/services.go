package containerd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/bulkhead-project/bulkhead/door/containerd/options"
)

// operationTimeout bounds an operation that may outlive its caller.
const operationTimeout = 3 * time.Minute

// Publisher queues events, and returns at once.
type Publisher interface {
	Publish(topic string, m proto.Message)
}

// Options are the parts of a front. All but Defaults are required.
type Options struct {
	// Namespace is containerd's namespace of all containers.
	Namespace string
	Runtime   Runtime
	Events    Publisher
	// Defaults are the runtime options of a pod of the Sandbox API.
	Defaults options.Options
	Log      *slog.Logger
	// Shutdown is called when the front should end, possibly several times. It must return at once.
	Shutdown func()
}

// Services are the services of one front. New creates them and Close ends them.
type Services struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	tasks map[string]*task
	pod   *pod // of the Sandbox API
}

// New returns the services of o.
func New(o Options) *Services {
	s := &Services{o: o, tasks: map[string]*task{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Register registers the services on srv.
func (s *Services) Register(srv *ttrpc.Server) {
	for _, name := range taskServices {
		srv.RegisterService(name, &ttrpc.ServiceDesc{Methods: s.taskMethods()})
	}
	sandboxv1.RegisterTTRPCSandboxService(srv, sandboxes{s})
}

// Close stops watching processes, and returns when all operations have ended. The processes stay as they are.
func (s *Services) Close() {
	s.cancel()
	s.wg.Wait()
}

// detach runs op, which outlives a caller that leaves. The end of ctx ends only the wait.
func (s *Services) detach(ctx context.Context, op func(context.Context) error) error {
	result := make(chan error, 1)
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTimeout)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		result <- op(ctx)
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// task returns a task that is created.
func (s *Services) task(id string) (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	if t == nil || !t.known() {
		return nil, noTask(id)
	}
	return t, nil
}

// process returns the process of a task, or the exec with an id.
func (s *Services) process(id, exec string) (*task, *process, error) {
	t, err := s.task(id)
	if err != nil {
		return nil, nil, err
	}
	if exec == "" {
		return t, &t.process, nil
	}
	p, err := t.exec(exec)
	return t, p, err
}

// EndIfIdle asks for the end of the front if it has neither tasks nor a pod.
func (s *Services) EndIfIdle() {
	s.mu.Lock()
	idle := len(s.tasks) == 0 && s.pod == nil
	s.mu.Unlock()
	if idle {
		s.o.Shutdown()
	}
}
