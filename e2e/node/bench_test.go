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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	door "github.com/bulkhead-project/bulkhead/door/node"
	"github.com/bulkhead-project/bulkhead/door/node/local"
	"github.com/bulkhead-project/bulkhead/door/node/runner"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/testcri"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testkube"
)

// fake is a runtime without machines and streams.
type fake struct{ *testcri.Runtime }

func (f fake) Backend() runner.Backend { return runner.Backend{Runtime: f.Runtime, Images: f.Runtime} }

func (fake) Exec(http.ResponseWriter, *http.Request, *runtimeapi.ExecRequest) error {
	return http.ErrNotSupported
}
func (fake) Attach(http.ResponseWriter, *http.Request, *runtimeapi.AttachRequest) error {
	return http.ErrNotSupported
}
func (fake) PortForward(http.ResponseWriter, *http.Request, *runtimeapi.PortForwardRequest) error {
	return http.ErrNotSupported
}

// counts are requests to the API server, by what they do.
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

// TestBench measures a thousand pods that are bound at once, over a runtime that answers after 10 ms: `make
// bench-node`. With fewer pods it is a test like others.
func TestBench(t *testing.T) {
	n := 30
	if text := os.Getenv("BULKHEAD_BENCH_NODE"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		t.Skip("starts a control plane; make test runs it in its second pass")
	}
	c := testkube.Start(t)
	ctx, cancel := context.WithCancel(testdeadline.Context(t, 5*time.Minute))
	defer cancel()
	pods := c.Client.CoreV1().Pods(ns)
	c.Wait(ctx, t, "the namespace's service account", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	kubeconfig, _, _ := c.Node()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	seen := &counts{n: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
	// They are bound before there is a node, and so come at once.
	var next atomic.Int64
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
				p.Spec = corev1.PodSpec{NodeName: testkube.NodeName, Containers: []corev1.Container{{Name: "c", Image: "here:1"}}}
				p.Spec.AutomountServiceAccountToken = new(bool)
				p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
				if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	before := heap()
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		ended <- door.Run(ctx, door.Options{
			Roots: dirs.Roots{Data: filepath.Join(c.Dir, "d"), State: filepath.Join(c.Dir, "s")}, Config: config, Name: testkube.NodeName,
			IP: testkube.NodeIP, MaxPods: n, Listen: "127.0.0.1:0", ClusterDomain: "cluster.local",
			Runtime: func(context.Context, local.Options) (door.Runtime, error) {
				return fake{testcri.New(10 * time.Millisecond)}, nil
			},
			Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		}, func() {})
	}()
	var took time.Duration
	c.WaitEvery(ctx, t, 200*time.Millisecond, "the pods to run", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: "0"})
		if took = time.Since(began); err == nil && len(list.Items) < n {
			err = fmt.Errorf("%d of %d run", len(list.Items), n)
		}
		return err
	})
	memory := heap() - before
	seen.mu.Lock()
	statuses, all := seen.n["PATCH /status"], ""
	for _, what := range slices.Sorted(maps.Keys(seen.n)) {
		all += fmt.Sprintf("  %-28s %7d  %.2f a pod\n", what, seen.n[what], float64(seen.n[what])/float64(n))
	}
	seen.mu.Unlock()
	t.Logf("%d pods run after %v: %.0f a second; %.1f MB of heap and stacks; requests:\n%s",
		n, took.Round(time.Millisecond), float64(n)/took.Seconds(), float64(memory)/(1<<20), all)
	if statuses > 4*n {
		t.Errorf("%d writes of statuses for %d pods", statuses, n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the node's end: %v", err)
	}
}

// heap is what this process uses, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
