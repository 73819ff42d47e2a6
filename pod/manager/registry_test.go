package manager

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// TestFind: reading commands accept a shortened name. Commands with changes do not, because a longer name could be
// meant.
func TestFind(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		for _, name := range []string{"web-production", "web-test", "db"} {
			p := spec(name)
			p.UID = types.UID(strings.Repeat(name[len(name)-1:], 8) + "-" + name)
			w.run(m, Record{Pod: p})
		}
		other := spec("db")
		other.Namespace, other.UID = "other", "ffffffff-other"
		w.run(m, Record{Pod: other})
		sandbox := w.find(m, "web-test").Sandbox()

		for _, tc := range []struct {
			ref          string
			loose, exact string // the pod's key
			err          error
		}{
			{ref: "web-test", loose: "default/web-test", exact: "default/web-test"},
			{ref: "pod/web-test", loose: "default/web-test", exact: "default/web-test"},
			{ref: "default/db", loose: "default/db", exact: "default/db"},
			{ref: "web-p", loose: "default/web-production"},
			{ref: "web", err: errclass.ErrAmbiguous},
			{ref: "db", err: errclass.ErrAmbiguous},
			{ref: "tttttt", loose: "default/web-test", exact: "default/web-test"},
			{ref: "ttttt", loose: "default/web-test"},
			{ref: sandbox, loose: "default/web-test", exact: "default/web-test"},
			{ref: "ffffffff-other", loose: "other/db", exact: "other/db"},
			{ref: "default/tttttt", loose: "default/web-test", exact: "default/web-test"},
			{ref: "default/web-p", loose: "default/web-production"},
			{ref: "other/ffffff", loose: "other/db", exact: "other/db"},
			{ref: "default/ffffff", err: errdefs.ErrNotFound},
			{ref: "default/", err: errdefs.ErrNotFound},
			{ref: "nosuch", err: errdefs.ErrNotFound},
			{ref: "", err: errdefs.ErrNotFound},
			{ref: "pod/", err: errdefs.ErrNotFound},
		} {
			if p, err := m.Find(tc.ref); tc.loose == "" && !errors.Is(err, tc.err) || tc.loose != "" && (err != nil || p.Key() != tc.loose) {
				t.Errorf("%q: %v", tc.ref, err)
			}
			p, err := m.FindExact(tc.ref)
			if tc.exact == "" && !errors.Is(err, errdefs.ErrNotFound) && (tc.ref != "db" || !errors.Is(err, errclass.ErrAmbiguous)) {
				t.Errorf("exactly %q: %v", tc.ref, err)
			}
			if tc.exact != "" && (err != nil || p.Key() != tc.exact) {
				t.Errorf("exactly %q: %v", tc.ref, err)
			}
		}
	})
}

// TestAdd refuses a used name and a pod that cannot be run, and leaves no trace.
func TestAdd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		first, err := m.Add(Record{Pod: spec("web")}, Objects{})
		if err != nil {
			t.Fatal(err)
		}
		again := spec("web")
		again.UID = "another"
		if _, err := m.Add(Record{Pod: again}, Objects{}); !errors.Is(err, errdefs.ErrAlreadyExists) {
			t.Errorf("the same name: %v", err)
		}
		elsewhere := spec("web")
		elsewhere.Namespace, elsewhere.UID = "other", "elsewhere"
		if _, err := m.Add(Record{Pod: elsewhere}, Objects{}); err != nil {
			t.Errorf("the same name in another namespace: %v", err)
		}
		aliases := spec("bad")
		aliases.Annotations = map[string]string{"io.bulkhead.internal/x": "y"}
		if _, err := m.Add(Record{Pod: aliases}, Objects{}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("one that cannot be run: %v", err)
		}
		w.refuse = errors.New("a full disk")
		if _, err := m.Add(Record{Pod: spec("late")}, Objects{}); !errors.Is(err, w.refuse) || errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("one that cannot be run now: %v", err)
		}
		w.refuse = nil
		if left := w.holds(); !slices.Equal(left, []types.UID{first.UID(), "elsewhere"}) {
			t.Errorf("held: %v", left)
		}
		if err := m.Discard(first); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(filepath.Join(w.dir, "pods"))
		if err != nil || len(left) != 1 || left[0].Name() != "elsewhere" {
			t.Errorf("left: %v, %v", left, err)
		}
		if left := w.holds(); !slices.Equal(left, []types.UID{"elsewhere"}) {
			t.Errorf("held: %v", left)
		}
	})
}

// TestNews: a watcher is notified of events and the end of any pod.
func TestNews(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		next := m.News()
		p := w.run(m, Record{Pod: spec("web", "exit", "0")})
		<-next
		var reasons []string
		happened, _ := p.Events().Since(0)
		for _, e := range happened {
			reasons = append(reasons, e.Reason)
		}
		if got := strings.Join(reasons, " "); !strings.Contains(got, "Created Started") || got != strings.Join(w.events, " ") {
			t.Errorf("kept %q, the door got %v", got, w.events)
		}
		next = m.News()
		if err := p.Remove(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		<-next
	})
}

// TestOldest: pods are ordered by creation, and then by name.
func TestOldest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		for _, name := range []string{"b", "a"} {
			w.run(m, Record{Pod: spec(name)})
		}
		late := spec("0-late")
		late.CreationTimestamp.Time = late.CreationTimestamp.Add(1e9)
		w.run(m, Record{Pod: late})
		var names []string
		for _, p := range m.All() {
			names = append(names, p.Name())
		}
		if got := strings.Join(names, " "); got != "a b 0-late" {
			t.Error(got)
		}
	})
}

// TestListWhileOneStarts: a list is safe while a pod is started again, which replaces its record.
func TestListWhileOneStarts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web", "exit", "0")})
		w.run(m, Record{Pod: spec("other")})
		var reader sync.WaitGroup
		reader.Go(func() {
			for range 100 {
				m.All()
			}
		})
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		reader.Wait()
	})
}

// TestObjects: a pod's objects are saved for the next manager, with mode 0600, including newer versions.
func TestObjects(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		config := func(namespace, value string) *corev1.ConfigMap {
			c := &corev1.ConfigMap{Data: map[string]string{"key": value}}
			c.Name, c.Namespace = "config", namespace
			return c
		}
		secret := &corev1.Secret{Data: map[string][]byte{"password": []byte("hidden")}}
		secret.Name, secret.Namespace = "secret", "default"
		all := Objects{ConfigMaps: []*corev1.ConfigMap{config("default", "one"), config("other", "two")}, Secrets: []*corev1.Secret{secret}}
		if all.Empty() || !(Objects{}).Empty() {
			t.Error("empty is not empty")
		}
		given := all.Of("default")
		if len(given.ConfigMaps) != 1 || len(given.Secrets) != 1 || len(all.Of("other").Secrets) != 0 {
			t.Fatalf("objects of namespace default: got %+v, want one ConfigMap and one Secret, and none in another namespace", given)
		}
		m := w.open()
		p, err := m.Add(Record{Pod: spec("web")}, given)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(p.Dir(), objectsFile)
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("its file: %v, %v", info, err)
		}
		if err := p.PutObjects(Objects{ConfigMaps: []*corev1.ConfigMap{config("default", "newer")}}); err != nil {
			t.Fatal(err)
		}
		m.Close()
		next := w.find(w.open(), "web")
		if o := next.Objects(); len(o.Secrets) != 1 || len(o.ConfigMaps) != 1 || o.ConfigMaps[0].Data["key"] != "newer" {
			t.Errorf("read back: %+v", o)
		}
		next.m.Close()
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := w.find(w.open(), "web").Objects(); !o.Empty() {
			t.Errorf("Objects with a damaged file: got %+v, want none", o)
		}
	})
}
