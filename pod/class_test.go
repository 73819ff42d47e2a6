package pod

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/volume"
)

// handlerCRI records the handlers of sandboxes.
type handlerCRI struct {
	*fakeCRI
	handlers []string
}

func (h *handlerCRI) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	h.mu.Lock()
	h.handlers = append(h.handlers, handler)
	h.mu.Unlock()
	return h.fakeCRI.RunPodSandbox(ctx, config, handler)
}

// classes are objects that change when a class appears.
type classes struct {
	volume.None
	mu      sync.Mutex
	handler string
	changed chan struct{}
	asked   int
}

func (c *classes) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *classes) lookup(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.handler == "" {
		return "", volume.NotFound("runtimeclass.node.k8s.io", "fast")
	}
	return c.handler, nil
}

func (c *classes) come(handler string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler = handler
	close(c.changed)
	c.changed = make(chan struct{})
}

// TestRuntimeClass: a pod waits for its class, continues when it appears, and gets its handler. Without a lookup the
// handler is the class's name.
func TestRuntimeClass(t *testing.T) {
	name := "fast"
	begin := func(t *testing.T, named *string, change func(*Options)) (*supervised, *handlerCRI) {
		fake := &handlerCRI{fakeCRI: newFake()}
		p := testpod.New("Always", "main")
		p.Spec.RuntimeClassName = named
		return supervise(t, fake.fakeCRI, p, func(o *Options) { o.Runtime = fake; change(o) }), fake
	}
	t.Run("comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &classes{changed: make(chan struct{})}
			s, fake := begin(t, &name, func(o *Options) { o.Objects, o.Handler = c, c.lookup })
			s.after(10 * time.Minute)
			if got := s.messages("FailedCreatePodSandBox"); len(fake.handlers) > 0 || len(got) == 0 ||
				got[0] != `: look up the pod's RuntimeClass: runtimeclass.node.k8s.io "fast" not found` {
				t.Fatalf("made with %q, events %q", fake.handlers, got)
			}
			if c.asked > 20 {
				t.Errorf("asked %d times", c.asked)
			}
			c.come("cold")
			status := s.after(0)
			if !slices.Equal(fake.handlers, []string{"cold"}) || status.Phase != corev1.PodRunning {
				t.Errorf("made with %q, it is %s", fake.handlers, status.Phase)
			}
		})
	})
	for title, tc := range map[string]struct {
		named   *string
		handler func(context.Context) (string, error)
		want    string
	}{
		"without a lookup":          {&name, nil, "fast"},
		"none":                      {nil, nil, ""},
		"no class, with a lookup":   {nil, (&classes{}).lookup, ""},
		"empty":                     {new(string), (&classes{}).lookup, ""},
		"its handler is the common": {&name, (&classes{handler: "bulkhead"}).lookup, "bulkhead"},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, fake := begin(t, tc.named, func(o *Options) { o.Handler = tc.handler })
				if !slices.Equal(fake.handlers, []string{tc.want}) {
					t.Errorf("made with %q", fake.handlers)
				}
			})
		})
	}
}
