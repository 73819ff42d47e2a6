package manifests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// world is a Source of a directory.
type world struct {
	t   *testing.T
	ctx context.Context
	dir string
	s   *Source

	mu       sync.Mutex
	problems map[string]string // the last one of each file
	news     chan struct{}
	ended    []types.UID
}

func newWorld(t *testing.T, files map[string]string) *world {
	t.Helper()
	t.Parallel()
	w := &world{
		t: t, ctx: testdeadline.Context(t, 20*time.Second), dir: filepath.Join(t.TempDir(), "m"),
		problems: map[string]string{}, news: make(chan struct{}, 1),
	}
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		w.write(name, text)
	}
	w.open()
	return w
}

// open starts a Source of the directory, as a new process does.
func (w *world) open() {
	w.s = New(Options{Dir: w.dir, Node: "node", QuietTime: time.Millisecond, Problem: func(file string, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.problems[file] = err.Error()
		w.notify()
	}})
	_ = w.s.Subscribe(func(types.UID) { w.notify() }, func(p *corev1.Pod) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = append(w.ended, p.UID)
		w.notify()
	})
	ctx, cancel := context.WithCancel(w.ctx)
	var all sync.WaitGroup
	w.t.Cleanup(all.Wait)
	w.t.Cleanup(cancel)
	s := w.s
	all.Go(func() {
		if err := s.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	<-s.Read()
}

func (w *world) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// until waits for a change of the Source.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for !is() {
		select {
		case <-w.news:
		case <-w.ctx.Done():
			w.t.Fatalf("%s: pods %v, problems %v", what, w.s.All(), w.problems)
		}
	}
}

func (w *world) problem(file, words string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Contains(w.problems[file], words)
	}
}

// write creates or replaces a file atomically.
func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		w.t.Fatal(err)
	}
}

// podOf returns the text of a pod.
func podOf(name, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {%s containers: [{name: c, image: i}]}\n", name, more)
}

// TestPod checks that a file becomes the same pod as in a kubelet.
func TestPod(t *testing.T) {
	w := newWorld(t, map[string]string{
		"a.yaml": podOf("one", "hostNetwork: true, priorityClassName: system-node-critical,"),
		"b.json": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"two","namespace":"kube-system","uid":"mine"},
			"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		".hidden.yaml": podOf("hidden", ""),
	})
	if err := os.Mkdir(filepath.Join(w.dir, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	one, two := w.s.Named("default", "one-node"), w.s.Named("kube-system", "two-node")
	if one == nil || two == nil || len(w.s.All()) != 2 || len(w.problems) > 0 {
		t.Fatalf("pods %v, problems %v", w.s.All(), w.problems)
	}
	if !control.Static(one.UID) || !control.Static(two.UID) || one.UID == two.UID || one.Spec.NodeName != "node" {
		t.Errorf("UIDs %s and %s, node %s", one.UID, two.UID, one.Spec.NodeName)
	}
	a := one.Annotations
	if a[control.SourceAnnotation] != "file" || a[control.HashAnnotation] != string(one.UID) || a[control.SeenAnnotation] == "" {
		t.Errorf("annotations %v", a)
	}
	stays := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if tol := one.Spec.Tolerations; len(tol) != 1 || tol[0] != stays {
		t.Errorf("tolerations %v", tol)
	}
	if w.s.Get(one.UID) != one || one.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("pod %v", one)
	}
}

// TestUID checks that the contents, the name of the file and the node determine the UID, but comments do not.
func TestUID(t *testing.T) {
	t.Parallel()
	uid := func(path, node, text string) types.UID {
		p, err := decode(path, node, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p.UID
	}
	base := uid("/m/a", "n", podOf("p", ""))
	if uid("/m/a", "n", "# words\n"+podOf("p", "")) != base {
		t.Error("a comment changes the UID")
	}
	for what, other := range map[string]types.UID{
		"file": uid("/m/b", "n", podOf("p", "")), "node": uid("/m/a", "o", podOf("p", "")),
		"name": uid("/m/a", "n", podOf("q", "")), "text": uid("/m/a", "n", podOf("p", "hostNetwork: true,")),
	} {
		if other == base {
			t.Errorf("another %s does not change the UID", what)
		}
	}
}

// TestChanges checks that files and the directory may be created, changed and removed, and that no pod ends with the
// directory.
func TestChanges(t *testing.T) {
	w := newWorld(t, nil)
	named := func() *corev1.Pod { return w.s.Named("default", "p-node") }
	w.write("p", podOf("p", ""))
	w.until("a new file", func() bool { return named() != nil })
	old := named()
	w.write("p", podOf("p", "hostNetwork: true,"))
	w.until("a changed file", func() bool { p := named(); return p != nil && p.UID != old.UID })
	now := named()
	if err := os.Rename(w.dir, w.dir+".away"); err != nil {
		t.Fatal(err)
	}
	w.until("no directory", w.problem(w.dir, "no such file"))
	if named() == nil {
		t.Error("the pods ended with the directory")
	}
	if live, err := w.s.Live(w.ctx, "", "", "0123456789abcdef0123456789abcdef"); live || err == nil {
		t.Errorf("a pod of a missing directory: %v, %v", live, err)
	}
	if err := os.Rename(w.dir+".away", w.dir); err != nil {
		t.Fatal(err)
	}
	w.write("q", podOf("q", ""))
	w.until("the directory is back", func() bool { return w.s.Named("default", "q-node") != nil })
	if named() != now {
		t.Error("another pod came back")
	}
	if err := os.Remove(filepath.Join(w.dir, "p")); err != nil {
		t.Fatal(err)
	}
	w.until("a removed file", func() bool { return named() == nil })
	w.mu.Lock()
	defer w.mu.Unlock()
	if fmt.Sprint(w.ended) != fmt.Sprint([]types.UID{old.UID, now.UID}) {
		t.Errorf("ended: %v, want %v", w.ended, []types.UID{old.UID, now.UID})
	}
	if live, err := w.s.Live(w.ctx, "", "", now.UID); live || err != nil {
		t.Errorf("a pod without a file: %v, %v", live, err)
	}
}

// TestFaults checks that each invalid file is reported and does not affect the others.
func TestFaults(t *testing.T) {
	w := newWorld(t, map[string]string{"good": podOf("good", "")})
	const key = "image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"
	for name, tc := range map[string]struct{ text, words string }{
		"half":       {podOf("p", "")[:40], ""},
		"text":       {"words", "not an object"},
		"empty":      {"", "no pod"},
		"kind":       {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "exactly one pod"},
		"two":        {podOf("a", "") + "---\n" + podOf("b", ""), "2 of them pods"},
		"nameless":   {strings.Replace(podOf("p", ""), "name: p", "generateName: p-", 1), "needs a name"},
		"field":      {podOf("p", "nonsense: 1,"), "nonsense"},
		"invalid":    {podOf("p", "restartPolicy: Sometimes,"), "restartPolicy"},
		"large":      {podOf("p", "") + strings.Repeat("# words\n", maxFile/8), "more than"},
		"longname":   {podOf(strings.Repeat("a", 250), ""), "no more than 253"},
		"twice":      {podOf("good", ""), "is already defined by good"},
		"mirror":     {strings.Replace(podOf("p", ""), "name: p", `name: p, annotations: {kubernetes.io/config.mirror: x}`, 1), "node sets it"},
		"finalizer":  {strings.Replace(podOf("p", ""), "name: p", `name: p, finalizers: [a/b]`, 1), "must not be set in a static pod"},
		"account":    {podOf("p", "serviceAccountName: a,"), "serviceaccounts"},
		"secret":     {podOf("p", "volumes: [{name: v, secret: {secretName: s}}],"), "secrets (via secret volumes)"},
		"pull":       {podOf("p", "imagePullSecrets: [{name: s}],"), "secrets"},
		"configmap":  {podOf("p", "volumes: [{name: v, configMap: {name: s}}],"), "configmaps"},
		"projected":  {podOf("p", "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}],"), "serviceaccounts (via"},
		"claim":      {podOf("p", "volumes: [{name: v, persistentVolumeClaim: {claimName: s}}],"), "persistentvolumeclaims"},
		"variable":   {strings.Replace(podOf("p", ""), "image: i", key, 1), "secrets"},
		"variables":  {strings.Replace(podOf("p", ""), "image: i", "image: i, envFrom: [{configMapRef: {name: s}}]", 1), "configmaps"},
		"unresolved": {podOf("p", "volumes: [{name: v, projected: {sources: [{configMap: {name: t}}]}}],"), "configmaps (via"},
	} {
		w.write(name, tc.text)
		w.until(name, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.problems[name] != ""
		})
		if !w.problem(name, tc.words)() {
			t.Errorf("%s: %s, want %s", name, w.problems[name], tc.words)
		}
		if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
			t.Error(err)
		}
	}
	if p := w.s.All(); len(p) != 1 || p[0].Name != "good-node" {
		t.Errorf("pods %v", p)
	}
}

// TestBadFileEndsNothing checks that the pod of a file that became invalid continues to run, also across a restart,
// until the file is valid again.
func TestBadFileEndsNothing(t *testing.T) {
	w := newWorld(t, map[string]string{"p": podOf("p", "")})
	before := w.s.Named("default", "p-node")
	w.write("p", "half")
	w.until("the fault", w.problem("p", "not an object"))
	if w.s.Get(before.UID) == nil {
		t.Error("the pod has ended")
	}
	w.open()
	if live, err := w.s.Live(w.ctx, before.Namespace, before.Name, before.UID); live || err == nil {
		t.Errorf("after another start: %v, %v", live, err)
	}
	if err := os.Remove(filepath.Join(w.dir, "p")); err != nil {
		t.Fatal(err)
	}
	w.write("q", podOf("q", ""))
	w.until("the other file", func() bool { return w.s.Named("default", "q-node") != nil })
	if live, err := w.s.Live(w.ctx, before.Namespace, before.Name, before.UID); live || err != nil {
		t.Errorf("without the file: %v, %v", live, err)
	}
}

// TestSecondFile checks that a file that changes to another file's pod ends no pod, and that it does not keep a pod
// without a file.
func TestSecondFile(t *testing.T) {
	w := newWorld(t, map[string]string{"p": podOf("p", ""), "q": podOf("q", "")})
	before := w.s.Named("default", "q-node")
	w.write("q", podOf("p", ""))
	w.until("the fault", w.problem("q", "is already defined by p"))
	if w.s.Get(before.UID) == nil {
		t.Error("the earlier pod of the file has ended")
	}
	if all := w.s.All(); len(all) != 2 {
		t.Errorf("pods %v", all)
	}
	w.open()
	if live, err := w.s.Live(w.ctx, "default", "gone-node", "some-uid"); live || err != nil {
		t.Errorf("a pod without a file: %v, %v", live, err)
	}
}

// TestNoFiles checks that only regular files are read, and that a directory that other users can write is refused.
func TestNoFiles(t *testing.T) {
	w := newWorld(t, nil)
	if err := syscall.Mkfifo(filepath.Join(w.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.write("p", podOf("p", ""))
	w.until("the file", func() bool { return w.s.Named("default", "p-node") != nil })
	if err := os.Chmod(w.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	w.write("q", podOf("q", ""))
	w.until("the fault", w.problem(w.dir, "other users may write it"))
	if len(w.s.All()) != 1 {
		t.Errorf("pods %v", w.s.All())
	}
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	w.until("the missing directory", w.problem(w.dir, "no such file"))
	if text := w.problems[w.dir]; strings.Contains(text, "\n") || strings.Count(text, "no such file") != 1 {
		t.Errorf("more than one line or cause: %q", text)
	}
}

// TestUntrustedFiles checks that writable files and links run no pod.
func TestUntrustedFiles(t *testing.T) {
	w := newWorld(t, map[string]string{"good": podOf("good", "")})
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(podOf("linked", "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(w.dir, "link")); err != nil {
		t.Fatal(err)
	}
	w.until("the link", w.problem("link", "it is a link"))
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte(podOf("open", "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o646); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(open, filepath.Join(w.dir, "open")); err != nil {
		t.Fatal(err)
	}
	w.until("the file", w.problem("open", "chmod go-w"))
	if all := w.s.All(); len(all) != 1 || all[0].Name != "good-node" {
		t.Errorf("pods %v", all)
	}
}
