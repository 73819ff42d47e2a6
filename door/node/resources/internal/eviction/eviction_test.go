package eviction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/bulkhead-project/bulkhead/door/node/host"
)

// world is a host with measurements and pods that the test sets.
type world struct {
	mu        sync.Mutex // guards the fields below while a Manager runs
	host      Host
	err       error
	pods      []*corev1.Pod
	usage     map[types.UID]Usage
	evicted   []string
	messages  []string
	signals   []string
	stays     map[types.UID]bool // pods that do not end in time
	cut       func()             // called by a pod's end, which it interrupts
	reclaimed int
	frees     uint64 // freed by Reclaim
	holds     uint64 // held by each evicted pod until Free
	stuck     error  // error of Free
	held      uint64
	changes   int
	warned    []string
}

func (w *world) manager(t *testing.T, thresholds ...string) *Manager {
	t.Helper()
	list, err := Parse(thresholds)
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Thresholds: list, Measure: func() (Host, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.host, w.err
		},
		Changed: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changes++
		},
		Pods:  func() []*corev1.Pod { return append([]*corev1.Pod(nil), w.pods...) },
		Usage: func(context.Context) (map[types.UID]Usage, error) { return w.usage, nil },
		Evict: func(_ context.Context, p *corev1.Pod, own bool, message string) error {
			if own != strings.Contains(message, "limit") {
				t.Errorf("%s: evicted for its own limit: %v, %s", p.Name, own, message)
			}
			if w.cut != nil {
				w.cut()
			}
			w.held += w.holds
			w.evicted, w.messages = append(w.evicted, p.Name), append(w.messages, message)
			for i := range w.pods {
				if w.pods[i].UID == p.UID {
					w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
					break
				}
			}
			if w.stays[p.UID] || w.cut != nil {
				return errors.New("timeout")
			}
			return nil
		},
		Evicted: func(signal string) { w.signals = append(w.signals, signal) },
		Free: func(context.Context) error {
			if w.stuck == nil {
				w.host.Disk.Available, w.held = w.host.Disk.Available+w.held, 0
			}
			return w.stuck
		},
		Reclaim: func(context.Context) error { w.reclaimed++; w.host.Disk.Available += w.frees; return nil },
		Warn: func(reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.warned = append(w.warned, reason+": "+message)
		},
	})
}

// pod returns a pod with a specification.
func pod(t *testing.T, name, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	return p
}

// TestOrder checks that pods are evicted one at a time: first those that exceed their requests, then by priority, then
// by usage, and critical ones never. If a pod does not end in time, no other one is evicted.
func TestOrder(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	w := &world{stays: map[types.UID]bool{"stays": true}, usage: map[types.UID]Usage{
		"modest": {Memory: 90 * mib}, "small": {Memory: 10 * mib}, "large": {Memory: 20 * mib}, "important": {Memory: 500 * mib},
		"critical": {Memory: 900 * mib}, "stays": {Memory: 800 * mib},
	}}
	w.pods = []*corev1.Pod{
		pod(t, "critical", `{priority: 2000000000, containers: [{name: c}]}`),
		pod(t, "modest", `{containers: [{name: c, resources: {requests: {memory: 100Mi}}}]}`),
		pod(t, "important", `{priority: 10, containers: [{name: c}]}`),
		pod(t, "small", `{containers: [{name: c}]}`), pod(t, "large", `{containers: [{name: c}]}`),
		pod(t, "stays", `{containers: [{name: c}]}`),
	}
	w.host.Memory = host.Usage{Total: 1 << 30, Available: 50 * mib}
	m := w.manager(t, "memory.available<100Mi", "nodefs.available<10%")
	for i, want := range []string{"stays", "large", "small", "important", "modest"} {
		if err := m.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(w.evicted) != i+1 || w.evicted[i] != want {
			t.Fatalf("evicted %v, and then %s", w.evicted, want)
		}
	}
	if err := m.check(t.Context()); err != nil || len(w.evicted) != 5 || w.reclaimed != 0 {
		t.Errorf("a critical pod: %v, %v", w.evicted, err)
	}
	const want = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
	if w.messages[0] != want || w.warned[0] != "EvictionThresholdMet: Attempting to reclaim memory" {
		t.Errorf("%q, %q", w.messages[0], w.warned[0])
	}
}

// TestCutOff checks that a node that stops during an eviction evicts no other pod.
func TestCutOff(t *testing.T) {
	t.Parallel()
	const limited = `{containers: [{name: c, resources: {limits: {ephemeral-storage: 1000}}}]}`
	for name, spec := range map[string]string{"pressure": `{containers: [{name: c}]}`, "limits": limited} {
		written := Usage{Written: map[string]uint64{"c": 2000}}
		w := &world{usage: map[types.UID]Usage{"a": written, "b": written, "c": written}}
		w.pods = []*corev1.Pod{pod(t, "a", spec), pod(t, "b", spec), pod(t, "c", spec)}
		w.host.Memory = host.Usage{Total: 1 << 30, Available: 1}
		ctx, cancel := context.WithCancel(t.Context())
		w.cut = cancel
		if err := w.manager(t, "memory.available<100Mi").check(ctx); err != nil || len(w.evicted) != 1 {
			t.Errorf("%s: %v, %v", name, w.evicted, err)
		}
		cancel()
	}
}

// TestSilent checks that a pod that does not report its memory counts with its limit, or first without a limit.
func TestSilent(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	pods := []*corev1.Pod{
		pod(t, "large", `{containers: [{name: c}]}`), pod(t, "modest", `{containers: [{name: c}]}`),
		pod(t, "limited", `{containers: [{name: c, resources: {limits: {memory: 100Mi}}}]}`),
		pod(t, "guaranteed", `{containers: [{name: c, resources: {limits: {memory: 1Gi}, requests: {memory: 1Gi}}}]}`),
		pod(t, "silent", `{containers: [{name: c, resources: {limits: {memory: 100Mi}}}, {name: d}]}`),
		pod(t, "important", `{priority: 1, containers: [{name: c}]}`),
	}
	rank(MemoryAvailable, pods, map[types.UID]Usage{"large": {Memory: 200 * mib}, "modest": {Memory: 50 * mib}})
	var got []string
	for _, p := range pods {
		got = append(got, p.Name)
	}
	if want := "[silent large limited modest important guaranteed]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestHeld checks that the host's measurement overrides the guest's report. The memory of any VM is subtracted, unless
// the pod's overhead is part of its request.
func TestHeld(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	const request = `containers: [{name: c, resources: {requests: {memory: 200Mi}}}]}`
	pods := []*corev1.Pod{
		pod(t, "boasts", `{`+request), pod(t, "lies", `{`+request), pod(t, "within", `{`+request), pod(t, "silent", `{`+request),
		pod(t, "uncounted", `{`+request), pod(t, "declared", `{overhead: {memory: 60Mi}, `+request),
	}
	rank(MemoryAvailable, pods, map[types.UID]Usage{
		"boasts":    {Memory: 4000 * mib, Held: 250 * mib},            // 50 below, without the VM
		"lies":      {Memory: 1, Held: 500 * mib},                     // 200 above
		"within":    {Memory: 100 * mib, Held: 299 * mib},             // 1 below
		"silent":    {Silent: true, Held: 310 * mib},                  // 10 above
		"uncounted": {Memory: 350 * mib},                              // 150 above
		"declared":  {Memory: 1, Held: 290 * mib, Processes: 1 << 20}, // 30 above
	})
	var got []string
	for _, p := range pods {
		got = append(got, p.Name)
	}
	if want := "[lies uncounted declared silent within boasts]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestHeldDisk checks the same for the disk.
func TestHeldDisk(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	const request = `{containers: [{name: c, resources: {requests: {ephemeral-storage: 100Mi}}}]}`
	pods := []*corev1.Pod{pod(t, "boasts", request), pod(t, "lies", request), pod(t, "uncounted", request), pod(t, "writes", request)}
	for signal, want := range map[Signal]string{
		NodefsAvailable:  "[lies writes uncounted boasts]",
		NodefsInodesFree: "[lies writes uncounted boasts]",
	} {
		rank(signal, pods, map[types.UID]Usage{
			"boasts": {Disk: 4000 * mib, HeldDisk: 100 * mib}, "lies": {HeldDisk: 500 * mib},
			"uncounted": {Disk: 150 * mib}, "writes": {Disk: 160 * mib, HeldDisk: 170 * mib},
		})
		var got []string
		for _, p := range pods {
			got = append(got, p.Name)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", signal, got, want)
		}
	}
}

// TestDisk checks that unused data is removed before pods are evicted, and that the pod furthest above its request is
// evicted first.
func TestDisk(t *testing.T) {
	t.Parallel()
	w := &world{frees: 60, usage: map[types.UID]Usage{
		"a": {Disk: 10, Written: map[string]uint64{"c": 10}}, "b": {Disk: 18, Written: map[string]uint64{"c": 9, "d": 9}},
	}}
	w.pods = []*corev1.Pod{pod(t, "a", `{containers: [{name: c}]}`),
		pod(t, "b", `{containers: [{name: c}, {name: d, resources: {requests: {ephemeral-storage: 20}}}]}`)}
	w.host.Disk = host.Disk{Total: 1000, Available: 50, Inodes: 100, FreeInodes: 100}
	m := w.manager(t, "nodefs.available<10%", "imagefs.inodesFree<5%")
	if err := m.check(t.Context()); err != nil || len(w.evicted) != 0 || w.reclaimed != 1 {
		t.Errorf("evicted %v, reclaimed %d, %v", w.evicted, w.reclaimed, err)
	}
	w.frees, w.host.Disk.Available = 0, 50
	if err := m.check(t.Context()); err != nil || fmt.Sprint(w.evicted) != "[a]" {
		t.Errorf("evicted %v, %v", w.evicted, err)
	}
	const want = "The node was low on resource: ephemeral-storage. Threshold quantity: 100, available: 50. " +
		"Container c was using 10, request is 0, has larger consumption of ephemeral-storage. "
	if len(w.messages) == 0 || w.messages[0] != want {
		t.Errorf("%q", w.messages)
	}
}

// TestDiskOfEnded checks that the disk of an evicted pod is freed before another pod is evicted. If that fails,
// evictions pause.
func TestDiskOfEnded(t *testing.T) {
	t.Parallel()
	w := &world{holds: 100}
	for _, name := range []string{"a", "b", "c"} {
		w.pods = append(w.pods, pod(t, name, `{containers: [{name: c}]}`))
	}
	w.host.Disk = host.Disk{Total: 1000, Available: 50}
	m := w.manager(t, "nodefs.available<10%")
	for range 3 {
		if err := m.check(t.Context()); err != nil || fmt.Sprint(w.evicted) != "[a]" {
			t.Errorf("evicted %v, %v", w.evicted, err)
		}
	}
	w.stuck, w.host.Disk.Available = errors.New("it stays"), 50
	for range patience - 1 {
		if err := m.check(t.Context()); !errors.Is(err, w.stuck) || len(w.evicted) != 1 {
			t.Errorf("evicted %v, %v", w.evicted, err)
		}
	}
	for range patience { // one eviction, and no other for as long
		_ = m.check(t.Context())
	}
	if fmt.Sprint(w.evicted) != "[a b]" {
		t.Errorf("evicted %v", w.evicted)
	}
}

// TestLimits checks that pods above their limits are evicted without pressure, with the limit's signal.
func TestLimits(t *testing.T) {
	t.Parallel()
	const one = `containers: [{name: c, resources: {limits: {ephemeral-storage: 1000}}}]`
	const two = `containers: [{name: c, resources: {limits: {ephemeral-storage: 1000}}}, {name: d}]`
	const dirs = `volumes: [{name: v, emptyDir: {sizeLimit: 500}}, {name: w, emptyDir: {}}, {name: z, emptyDir: {sizeLimit: 0}}]`
	type written = map[string]uint64
	for _, tt := range []struct {
		name, spec       string
		disk             uint64
		written, volumes written
		limit            Signal
		why              string
	}{
		{name: "below", spec: one, disk: 1000, written: written{"c": 1000}},
		{
			name: "above its limit", spec: two, disk: 1001, written: written{"c": 1001}, limit: containerLimit,
			why: `Container c exceeded its local ephemeral storage limit "1k". `,
		},
		{name: "other container", spec: two, disk: 5000, written: written{"d": 5000}},
		{
			name: "all",
			spec: one + `, initContainers: [{name: s, restartPolicy: Always, resources: {limits: {ephemeral-storage: 1000}}}, {name: i}]`,
			disk: 2001, written: written{"c": 980, "s": 980, "i": 41}, limit: podLimit,
			why: "Pod ephemeral local storage usage exceeds the total limit of containers 2k. ",
		},
		{
			name: "with its emptyDirs", spec: one + `, ` + dirs, disk: 1001, written: written{"c": 1}, volumes: written{"w": 1000}, limit: podLimit,
			why: "Pod ephemeral local storage usage exceeds the total limit of containers 1k. ",
		},
		{name: "none", spec: `containers: [{name: c}]`, disk: 1 << 40, written: written{"c": 1 << 40}},
		{name: "critical", spec: `priority: 2000001000, ` + one, disk: 1001, written: written{"c": 1001}},
		{name: "emptyDir below its limit", spec: `containers: [{name: c}], ` + dirs, disk: 1500, volumes: written{"v": 500, "w": 1000, "z": 9}},
		{
			name: "emptyDir above its limit", spec: `containers: [{name: c}], ` + dirs, disk: 501, volumes: written{"v": 501}, limit: emptyDirLimit,
			why: `Usage of EmptyDir volume "v" exceeds the limit "500". `,
		},
	} {
		w := &world{pods: []*corev1.Pod{pod(t, "p", `{`+tt.spec+`}`)}, usage: map[types.UID]Usage{
			"p": {Disk: tt.disk, Written: tt.written, Volumes: tt.volumes},
		}}
		if err := w.manager(t, "memory.available<1").check(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Join(w.messages, ""); got != tt.why || strings.Join(w.signals, "") != string(tt.limit) {
			t.Errorf("%s: %s, %q, want %s, %q", tt.name, w.signals, got, tt.limit, tt.why)
		}
	}
}

// TestConditions checks that a condition starts with its cause, is reported at once, outlasts it by five minutes, and
// rejects pods that would add to it.
func TestConditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.host.Memory = host.Usage{Total: 1000, Available: 500}
		w.host.PIDs = host.Usage{Total: 1000, Available: 500}
		m := w.manager(t, "memory.available<100", "pid.available<10%")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { m.Run(ctx); close(ended) }()
		best, burst := pod(t, "b", `{containers: [{name: c}]}`), pod(t, "q", `{containers: [{name: c, resources: {requests: {memory: 1}}}]}`)
		tolerant := pod(t, "t", `{containers: [{name: c}], tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}]}`)
		critical := pod(t, "c", `{priority: 2000001000, containers: [{name: c}]}`)
		file := pod(t, "f", `{containers: [{name: c}]}`)
		file.UID = "0123456789abcdef0123456789abcdef"
		says := pod(t, "says", `{containers: [{name: c}]}`) // claims to be a static pod, but is not
		says.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		admitted := func() (out string) {
			for _, p := range []*corev1.Pod{best, burst, tolerant, critical, file, says} {
				if reason, message := m.Admit(p); reason == "" {
					out += p.Name
				} else if reason != "Evicted" || !strings.Contains(message, "The node had condition: [") {
					t.Errorf("%s: %s, %s", p.Name, reason, message)
				}
			}
			return out
		}
		for _, step := range []struct {
			memory, pids uint64
			err          error
			after        time.Duration
			admitted     string
			changes      int
		}{
			{memory: 500, pids: 500, after: time.Second, admitted: "bqtcfsays"},
			{memory: 50, pids: 500, after: 10 * time.Second, admitted: "qtcf", changes: 1},
			{memory: 500, pids: 500, after: 4 * time.Minute, admitted: "qtcf", changes: 1},
			{memory: 500, pids: 50, after: 10 * time.Second, admitted: "cf", changes: 2},
			{memory: 500, pids: 500, err: errors.New("not now"), after: 4 * time.Minute, admitted: "cf", changes: 2},
			{memory: 500, pids: 500, after: 5 * time.Minute, admitted: "bqtcfsays", changes: 3},
		} {
			w.mu.Lock()
			w.host.Memory.Available, w.host.PIDs.Available, w.err = step.memory, step.pids, step.err
			w.mu.Unlock()
			time.Sleep(step.after)
			synctest.Wait()
			got := admitted()
			w.mu.Lock()
			if got != step.admitted || w.changes < step.changes {
				t.Errorf("%+v: admitted %s, %d changes", step, got, w.changes)
			}
			w.mu.Unlock()
		}
		cancel()
		<-ended
	})
}

// TestParse checks thresholds in a kubelet's format.
func TestParse(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"memory.available<100Mi": true, "nodefs.available<10%": true, "nodefs.inodesFree<5%": true, "pid.available<1k": true,
		"imagefs.available<0%": true, "memory.available": false, "memory.available<": false, "memory.available<-1": false, "swap<1": false,
		"memory.available<100%": false, "memory.available<x%": false, "": false,
	} {
		if _, err := Parse([]string{text}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Parse([]string{"memory.available<1", "memory.available<2"}); err == nil {
		t.Error("a signal that is set twice is accepted")
	}
}

// TestWithheld checks that thresholds of memory and of the pods' disk reduce what pods can use, as a quantity or a
// percentage.
func TestWithheld(t *testing.T) {
	t.Parallel()
	list, err := Parse([]string{"memory.available<100Mi", "nodefs.available<10%", "imagefs.available<15%", "nodefs.inodesFree<5%"})
	if err != nil {
		t.Fatal(err)
	}
	got := Withheld(list, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("50Gi"),
	})
	memory, disk := got[corev1.ResourceMemory], got[corev1.ResourceEphemeralStorage]
	if len(got) != 2 || memory.Cmp(resource.MustParse("100Mi")) != 0 || disk.Cmp(resource.MustParse("5Gi")) != 0 {
		t.Errorf("%v", got)
	}
	if got := Withheld(nil, corev1.ResourceList{}); len(got) != 0 {
		t.Errorf("without thresholds: %v", got)
	}
}
