package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	door "github.com/bulkhead-project/bulkhead/door/node"
	"github.com/bulkhead-project/bulkhead/door/node/registration"
	noderuntime "github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/runtime/local"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// fake is a runtime without VMs and streams.
type fake struct{ *testcri.Runtime }

func (f fake) Backend() noderuntime.Backend {
	return noderuntime.Backend{Runtime: f.Runtime, Images: f.Runtime}
}

func (fake) Exec(http.ResponseWriter, *http.Request, *runtimeapi.ExecRequest) error {
	return http.ErrNotSupported
}
func (fake) Attach(http.ResponseWriter, *http.Request, *runtimeapi.AttachRequest) error {
	return http.ErrNotSupported
}
func (fake) PortForward(http.ResponseWriter, *http.Request, *runtimeapi.PortForwardRequest) error {
	return http.ErrNotSupported
}

// counts counts requests to the API server by verb and resource.
type counts struct {
	next http.RoundTripper
	mu   sync.Mutex
	n    map[string]int
}

func (c *counts) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.URL.Path
	for _, known := range []string{"/status", "/events", "/pods", "/nodes", "/leases", "/configmaps", "/token"} {
		if strings.Contains(what, known) {
			what = known
			break
		}
	}
	if r.URL.Query().Get("watch") != "" {
		what += " watch"
	}
	c.mu.Lock()
	c.n[r.Method+" "+what]++
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

// totals returns the number of writing requests except events, the number of events, and a table of all requests.
func (c *counts) totals(pods int) (writes, events int, table string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(c.n)) {
		table += fmt.Sprintf("  %-28s %7d  %.2f per pod\n", what, c.n[what], float64(c.n[what])/float64(pods))
		switch {
		case strings.HasSuffix(what, " /events"):
			events += c.n[what]
		case !strings.HasPrefix(what, http.MethodGet+" "):
			writes += c.n[what]
		}
	}
	return writes, events, table
}

// The goals for many pods at once: pods started per second, writing requests per pod, and memory in MiB.
const (
	manyPods    = 1000
	manyASecond = 200
	manyWrites  = 4
	manyMemory  = 60 // MiB
)

// For few pods: writing requests per pod. Each pod has two patches and three events. How many events are sent when the
// last pod runs varies.
const (
	fewWrites = 6
	mostOwn   = 3 // without events; also the limit for many pods
)

// TestBench measures pods that are bound at once: a thousand over a runtime that answers after 10 ms, and fifty in VMs.
// `make bench-node` runs it. With fewer pods it is an ordinary test.
func TestBench(t *testing.T) {
	testturn.SkipUnless(t, 0, 2)
	n, vms := 30, 3
	if text := os.Getenv("BULKHEAD_BENCH_NODE"); text != "" {
		if _, err := fmt.Sscan(text, &n, &vms); err != nil {
			t.Fatal(err)
		}
	}
	w := newControlPlane(t)
	b := newBurst(t, w)
	t.Run("Fake", func(t *testing.T) { b.fake(t, n) })
	w.startNode(t)
	t.Run("VMs", func(t *testing.T) { b.inVMs(t, vms) })
}

// burst creates many pods at once.
type burst struct {
	*world
	client kubernetes.Interface // uses little CPU itself
}

func newBurst(t *testing.T, w *world) *burst {
	t.Helper()
	config := rest.CopyConfig(w.Config)
	config.ContentType, config.QPS = "application/vnd.kubernetes.protobuf", -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &burst{w, client}
}

// fake measures a node over a runtime without VMs, and removes its pods.
func (b *burst) fake(t *testing.T, n int) {
	ctx, cancel := context.WithCancel(testdeadline.Context(t, 5*time.Minute))
	defer cancel()
	kubeconfig, _, _ := b.Node()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	seen := &counts{n: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
	b.Wait(ctx, t, "the namespace's service account", func(ctx context.Context) error {
		_, err := b.client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	// They are bound before the node exists, so they arrive at once.
	b.bind(ctx, t, n, "here:1")
	running := b.running(ctx, t)
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(door.GCPercent))
	}
	most := fewWrites
	if n >= manyPods {
		most = manyWrites
	}
	before, busy := heap(), processor(t)
	began := time.Now()
	node := b.start(ctx, t, config, n)
	running(n)
	took := time.Since(began)
	memory, spent := heap()-before, processor(t)-busy
	writes, events, all := seen.totals(n)
	t.Logf("%d pods run after %v: %.0f per second; %v of CPU time; %.1f MB of heap and stacks; requests:\n%s",
		n, took.Round(time.Millisecond), float64(n)/took.Seconds(), spent.Round(time.Millisecond), float64(memory)/(1<<20), all)
	if writes > mostOwn*n || writes+events > most*n {
		t.Errorf("%d requests that write for %d pods, and %d events", writes, n, events)
	}
	if n >= manyPods { // depends on the host
		t.Logf("the goals are %d per second and %d MB", manyASecond, manyMemory)
	}
	b.unbind(ctx, t)
	cancel()
	if err := <-node; err != nil {
		t.Errorf("the node's end: %v", err)
	}
}

// start starts a node over a fake runtime. The channel receives its result.
func (b *burst) start(ctx context.Context, t *testing.T, config *rest.Config, n int) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		ended <- door.Run(ctx, door.Options{
			Roots: dirs.Roots{Data: filepath.Join(b.Dir, "fd"), State: filepath.Join(b.Dir, "fs")}, ClusterDomain: "cluster.local",
			Options: registration.Options{
				Config: config, Name: testkube.NodeName, IP: testkube.NodeIP, MaxPods: n, Listen: "127.0.0.1:0",
			},
			Runtime: func(context.Context, local.Options) (noderuntime.Runtime, error) {
				return fake{testcri.New(10 * time.Millisecond)}, nil
			},
			Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		}, func() {})
	}()
	return ended
}

// inVMs measures a node's pods in VMs.
func (b *burst) inVMs(t *testing.T, n int) {
	ctx := testdeadline.Context(t, time.Minute+time.Duration(n)*2*time.Second)
	running := b.running(ctx, t)
	b.bind(ctx, t, 1, b.image) // pulls the image and makes the template
	running(1)
	b.unbind(ctx, t)
	running = b.running(ctx, t)
	began := time.Now()
	b.bind(ctx, t, n, b.image)
	bound := time.Since(began)
	running(n)
	took := time.Since(began)
	t.Logf("%d pods in VMs run after %v (%v of it to create them): %.1f per second", n, took.Round(time.Millisecond),
		bound.Round(time.Millisecond), float64(n)/took.Seconds())
}

// bind creates pods that are bound to the node.
func (b *burst) bind(ctx context.Context, t *testing.T, n int, image string) {
	t.Helper()
	var next atomic.Int64
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
				p.Spec = corev1.PodSpec{NodeName: testkube.NodeName, TerminationGracePeriodSeconds: new(int64(1))}
				p.Spec.Containers = []corev1.Container{{Name: "c", Image: image, Command: []string{"sleep", "1d"}}}
				p.Spec.AutomountServiceAccountToken = new(bool)
				p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
				if _, err := b.client.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
}

// running watches the pods from now on. The returned function waits until n pods run. A watch costs less CPU than
// polling.
func (b *burst) running(ctx context.Context, t *testing.T) func(n int) {
	t.Helper()
	pods := b.client.CoreV1().Pods(ns)
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	lw := cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = "status.phase=Running"
		return pods.Watch(ctx, o)
	}}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &lw)
	if err != nil {
		t.Fatal(err)
	}
	return func(n int) {
		t.Helper()
		defer w.Stop()
		for i := 0; i < n; {
			select {
			case e := <-w.ResultChan():
				if e.Type == watch.Added {
					i++
				}
			case <-ctx.Done():
				t.Fatalf("%d of %d pods run: %v", i, n, ctx.Err())
			}
		}
	}
}

// unbind removes all pods and waits until they are gone.
func (b *burst) unbind(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := b.client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	b.Wait(ctx, t, "the pods to be gone", func(ctx context.Context) error {
		list, err := b.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("pod %s still exists", list.Items[0].Name)
		}
		return err
	})
}

// processor returns the CPU time of this process.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// heap returns the memory use of this process, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
