package podconfig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

// The tests mount in a mount namespace of their own.
func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

func TestWriteFiles(t *testing.T) {
	c, err := Parse(packed(t, full()))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := c.WriteFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := readHost("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"hostname":    "web-1\n",
		"hosts":       hosts,
		"resolv.conf": "search a b\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions ndots:5\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(dir, "shm"), &st); err != nil || st.Type != unix.TMPFS_MAGIC || int64(st.Blocks)*st.Bsize != 64<<20 {
		t.Errorf("the shared memory has type %#x and %d bytes, %v", st.Type, int64(st.Blocks)*st.Bsize, err)
	}
	for range 2 {
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	// Without DNS settings, the pod has the host's.
	dir = t.TempDir()
	if f, err = (Config{}).WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Remove() }()
	resolv, err := readHost("/etc/resolv.conf")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "resolv.conf")); err != nil || string(got) != resolv {
		t.Errorf("resolv.conf: got %q, %v, want the host's", got, err)
	}
}

// TestAddTo: a container gets the files that its bundle does not have, and everything else stays.
func TestAddTo(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		want   map[string]string // sources by destination
		access string
	}{
		"nothing": {
			`{"process":{"env":["A=\u0001"]},"root":{"readonly":true}}`,
			map[string]string{"/etc/hostname": "/pod/hostname", "/etc/hosts": "/pod/hosts", "/etc/resolv.conf": "/pod/resolv.conf"}, "ro",
		},
		"some": {
			`{"future":[1.50],"mounts":[{"destination":"/etc/hosts/","source":"/mine"},{"destination":"/dev/shm","type":"tmpfs","source":"shm"}],
			 "linux":{"namespaces":[{"type":"ipc","path":"/proc/7/ns/ipc"}]}}`,
			map[string]string{
				"/etc/hosts/": "/mine", "/etc/hostname": "/pod/hostname", "/etc/resolv.conf": "/pod/resolv.conf", "/dev/shm": "/pod/shm",
			}, "rw",
		},
		"an own IPC namespace": {
			`{"mounts":[{"destination":"/dev/shm","type":"tmpfs","source":"shm"}],"linux":{"namespaces":[{"type":"ipc"}]}}`,
			map[string]string{
				"/etc/hostname": "/pod/hostname", "/etc/hosts": "/pod/hosts", "/etc/resolv.conf": "/pod/resolv.conf", "/dev/shm": "shm",
			}, "rw",
		},
		"the host's shared memory": {
			`{"mounts":[{"destination":"/dev/shm","type":"bind","source":"/dev/shm"}],"linux":{"namespaces":[{"type":"ipc","path":"/p"}]}}`,
			map[string]string{
				"/etc/hostname": "/pod/hostname", "/etc/hosts": "/pod/hosts", "/etc/resolv.conf": "/pod/resolv.conf", "/dev/shm": "/dev/shm",
			}, "rw",
		},
	} {
		bundle := t.TempDir()
		path := filepath.Join(bundle, "config.json")
		if err := os.WriteFile(path, []byte(test.config), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time, all are there
			if err := (Files{"/pod"}).AddTo(bundle); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var spec specs.Spec
		if err := json.Unmarshal(b, &spec); err != nil {
			t.Fatal(err)
		}
		if len(spec.Mounts) != len(test.want) {
			t.Errorf("%s: got mounts %+v", name, spec.Mounts)
		}
		for _, m := range spec.Mounts {
			if test.want[m.Destination] != m.Source {
				t.Errorf("%s: %s: got source %s, want %s", name, m.Destination, m.Source, test.want[m.Destination])
			}
			if m.Source == "/pod/hosts" && !slices.Contains(m.Options, test.access) {
				t.Errorf("%s: got options %v, want %s", name, m.Options, test.access)
			}
		}
		var before, after map[string]any
		if err := json.Unmarshal([]byte(test.config), &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &after); err != nil {
			t.Fatal(err)
		}
		for key := range before {
			if key != "mounts" && mustJSON(t, before[key]) != mustJSON(t, after[key]) {
				t.Errorf("%s: %s became %v", name, key, after[key])
			}
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAddToRefuses(t *testing.T) {
	bundle := t.TempDir()
	if err := (Files{"/pod"}).AddTo(bundle); err == nil {
		t.Error("no configuration: got nil, want an error")
	}
	for _, bad := range []string{"{", "[]", `{"mounts":{}}`} {
		if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (Files{"/pod"}).AddTo(bundle); err == nil {
			t.Errorf("%s: got nil, want an error", bad)
		}
	}
}
