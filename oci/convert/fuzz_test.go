package convert

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

// FuzzDecode: every bundle becomes a plan that the lower layers accept, or an error of one line.
func FuzzDecode(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range seeds {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(simple))
	f.Add(with(f, `"annotations":{"io.bulkhead.volumes":"a:/srv/allowed","io.bulkhead.cpus":"2","io.bulkhead.strict":"true","x\ny":"z"}`))
	f.Add(with(f, `"mounts":[{"destination":"/a","type":"bind","source":"/socket","options":["subpath=../..","rbind"]}]`))
	f.Fuzz(func(t *testing.T, data []byte) { checkDecode(t, data) })
}

// FuzzMutations changes the values of a client's bundle.
func FuzzMutations(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		data, err := os.ReadFile(files[random.IntN(len(files))])
		if err != nil {
			t.Fatal(err)
		}
		var top any
		if err := json.Unmarshal(data, &top); err != nil {
			t.Fatal(err)
		}
		for range 1 + random.IntN(4) {
			top = mutate(random, top)
		}
		if data, err = json.Marshal(top); err != nil {
			t.Fatal(err)
		}
		checkDecode(t, data)
	})
}

// odd are values that a hostile client may write.
var odd = []any{
	"", "/", "..", "/../x", "a\x00b", "a\nb", "bind", "rbind", "/proc/../etc", "/dev/shm", "/dev", "/sys/fs/cgroup/x",
	"/socket", "/null", "/disk", "/file", "/missing", "lowerdir=/a", "overlay", "tmpfs", "bulkhead.files", "subpath=..", "idmap",
	"rshared", "ro", "io.bulkhead.volumes",
	"b", "a", "user", "network", "pid", "9223372036854775808", strings.Repeat("x", 5000), -1, 0, 1, 7, 1 << 31, uint64(math.MaxUint64),
	1.5, true, nil, []any{}, map[string]any{}, []any{nil}, []any{"/a", "/b"},
}

// mutate replaces one value somewhere in a JSON value.
func mutate(random *rand.Rand, value any) any {
	if random.IntN(12) == 0 {
		return odd[random.IntN(len(odd))]
	}
	switch v := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if len(keys) > 0 {
			key := keys[random.IntN(len(keys))]
			v[key] = mutate(random, v[key])
		}
		return v
	case []any:
		if len(v) > 0 {
			i := random.IntN(len(v))
			v[i] = mutate(random, v[i])
			if random.IntN(8) == 0 {
				v = append(v, v[i])
			}
		}
		return v
	}
	return odd[random.IntN(len(odd))]
}

// checkDecode converts a bundle, and checks the plan or the error.
func checkDecode(t *testing.T, data []byte) {
	t.Helper()
	o := Options{ID: "c1", Bundle: "/run/c1", Host: world{
		"/socket": {Type: Socket}, "/null": {Type: Char, Major: 1, Minor: 3}, "/disk": {Type: Block, Major: 8}, "/file": {Type: Regular},
	}, Allowed: []File{{Kind: Volume, Path: "/srv/allowed"}}, Join: func(n Namespaces) (*Join, error) {
		if !strings.HasPrefix(n.Network.Path, "/proc/1234/") {
			return nil, nil
		}
		return &Join{SandboxID: "5a", PID: agentv1.Namespace("5a")}, nil
	}}
	p, err := Decode(data, o)
	if err != nil {
		known := errors.Is(err, oci.ErrInvalid) || errors.Is(err, oci.ErrNotSupported) || errors.Is(err, os.ErrNotExist)
		if text := err.Error(); !known || strings.Contains(text, "\n") || len(text) > 2000 || p != nil {
			t.Errorf("error %q, plan %v", text, p)
		}
		return
	}
	spec, err := oci.DecodeBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, p, spec)
	for _, note := range p.Ignored {
		if text := note.String(); strings.Contains(text, "\n") || note.Why == "" {
			t.Errorf("note %q", text)
		}
	}
	// The same specification is accepted in strict mode if nothing was ignored.
	o.Strict = true
	if _, err := Decode(data, o); (err == nil) != (len(p.Ignored) == 0) {
		t.Errorf("strictly %v, ignored %v", err, p.Ignored)
	}
}

// checkPlan checks the properties on which the engine and the guest rely.
func checkPlan(t *testing.T, p *Plan, spec *specs.Spec) {
	t.Helper()
	if g := p.Guest; g.Hooks != nil || g.Windows != nil || g.VM != nil || g.Linux.CgroupsPath != "" || g.Process.ApparmorProfile != "" {
		t.Errorf("the guest gets settings of the host: %+v", p.Guest)
	}
	if !slices.Equal(p.Guest.Process.Env, spec.Process.Env) || !slices.Equal(p.Guest.Process.Args, spec.Process.Args) {
		t.Errorf("environment %q and arguments %q", p.Guest.Process.Env, p.Guest.Process.Args)
	}
	for name := range p.Guest.Annotations {
		if name != agentv1.Verbatim && name != agentv1.AllDevices {
			t.Errorf("annotation %q", name)
		}
	}
	for _, ns := range p.Guest.Linux.Namespaces {
		if _, ok := agentv1.ParseNamespace(ns.Path); ns.Path != "" && !ok {
			t.Errorf("namespace at %q", ns.Path)
		}
	}
	trees, disks := 1, 0
	var ours []containerv1.Mount
	for _, m := range p.Guest.Mounts {
		mount, err := containerv1.ParseMount(m.Destination, m.Type, m.Source, m.Options)
		if err != nil {
			t.Fatal(err)
		}
		if _, system := mount.Source.(containerv1.System); system {
			guests := slices.Contains(kernels, m.Type) && m.Source == m.Type ||
				m.Type == "bind" && slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(dir string) bool {
					return m.Source == dir || strings.HasPrefix(m.Source, dir+"/") && filepath.Clean(m.Source) == m.Source
				})
			if !guests {
				t.Errorf("mount %+v", m)
			}
			continue
		}
		ours = append(ours, mount)
		switch source := mount.Source.(type) {
		case containerv1.Share:
			if source.Name != TreeName(trees) || trees >= len(p.Trees) || p.Trees[trees].Destination != m.Destination || mount.SubPath != "" {
				t.Errorf("mount %+v of tree %d", m, trees)
			}
			trees++
		case containerv1.Block:
			if source.Name != DiskName(disks) || disks >= len(p.Disks) {
				t.Errorf("mount %+v of disk %d", m, disks)
			}
			disks++
		case containerv1.Dir:
		default:
			t.Errorf("mount %+v", m)
		}
	}
	if trees != len(p.Trees) || disks != len(p.Disks) {
		t.Errorf("%d trees of %d, %d disks of %d", trees, len(p.Trees), disks, len(p.Disks))
	}
	if err := containerv1.Check(containerv1.Container{Root: p.Root, Mounts: ours}); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(p); err != nil {
		t.Error(err)
	}
}
