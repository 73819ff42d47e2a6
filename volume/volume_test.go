package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/place"
)

func ptr[T any](v T) *T { return &v }

// world returns a pod with objects that it may refer to.
func world(t *testing.T) (*corev1.Pod, *Set) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "u-1",
		Labels: map[string]string{"b": "2", "a": "say \"1\""}, Annotations: map[string]string{"note": "x\ny"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")}}}}
	set := &Set{}
	if err := set.Apply(
		[]*corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "1", "b.conf": "two\n"},
			BinaryData: map[string][]byte{"bin": {0, 255}}}},
		[]*corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "keys"},
			Data: map[string][]byte{"key": []byte("hush"), "a": []byte("s")}}}); err != nil {
		t.Fatal(err)
	}
	return pod, set
}

func configMap(name string, optional *bool, mode *int32, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name},
		Optional: optional, DefaultMode: mode, Items: items}}
}

func secret(name string, optional *bool, mode *int32, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: optional, DefaultMode: mode, Items: items}}
}

func fieldFile(path, field string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
}

func resourceFile(path, container, of, divisor string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path,
		ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: of, Divisor: resource.MustParse(divisor)}}
}

// tree returns what users of the volumes see, with modes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range entries {
		if strings.HasPrefix(top.Name(), "..") {
			continue
		}
		at := filepath.Join(dir, top.Name())
		resolved, err := filepath.EvalSymlinks(at)
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.Walk(resolved, func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			out[top.Name()+strings.TrimPrefix(path, resolved)] = info.Mode().String() + " " + string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestManagerWritesVolumes(t *testing.T) {
	projected := func(mode *int32, sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: mode}}
	}
	for _, tc := range []struct {
		name    string
		source  corev1.VolumeSource
		fsGroup *int64
		plugin  string
		want    map[string]string
		err     string
	}{
		{name: "config map", source: configMap("settings", nil, nil), plugin: "kubernetes.io~configmap",
			want: map[string]string{"a": "-rw-r--r-- 1", "b.conf": "-rw-r--r-- two\n", "bin": "-rw-r--r-- \x00\xff"}},
		{name: "items", source: configMap("settings", nil, ptr(int32(0o400)),
			corev1.KeyToPath{Key: "a", Path: "x/y/z", Mode: ptr(int32(0o755))}, corev1.KeyToPath{Key: "bin", Path: "b"}),
			plugin: "kubernetes.io~configmap",
			want:   map[string]string{"x/y/z": "-rwxr-xr-x 1", "b": "-r-------- \x00\xff"}},
		{name: "one key at two places", source: configMap("settings", nil, nil, corev1.KeyToPath{Key: "a", Path: "p"},
			corev1.KeyToPath{Key: "a", Path: "q"}), plugin: "kubernetes.io~configmap",
			want: map[string]string{"p": "-rw-r--r-- 1", "q": "-rw-r--r-- 1"}},
		{name: "secret", source: secret("keys", nil, ptr(int32(0o440))), plugin: "kubernetes.io~secret",
			want: map[string]string{"key": "-r--r----- hush", "a": "-r--r----- s"}},
		{name: "fsGroup", source: secret("keys", nil, ptr(int32(0o400)), corev1.KeyToPath{Key: "a", Path: "a"}), fsGroup: ptr(int64(7)),
			plugin: "kubernetes.io~secret",
			want:   map[string]string{"a": "-r--r----- s"}},
		{name: "no mode for its owner", source: secret("keys", nil, ptr(int32(0o004)), corev1.KeyToPath{Key: "a", Path: "a"}),
			plugin: "kubernetes.io~secret",
			want:   map[string]string{"a": "-r-----r-- s"}},
		{name: "downward", source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			fieldFile("name", "metadata.name"), fieldFile("d/ns", "metadata.namespace"), fieldFile("uid", "metadata.uid"),
			fieldFile("labels", "metadata.labels"),
			fieldFile("one", "metadata.labels['b']"), fieldFile("notes", "metadata.annotations"),
			resourceFile("cpu", "c", "limits.cpu", "1m"), resourceFile("memory", "c", "limits.memory", "1Mi")}}},
			plugin: "kubernetes.io~downward-api",
			want: map[string]string{"name": "-rw-r--r-- web", "d/ns": "-rw-r--r-- prod", "uid": "-rw-r--r-- u-1",
				"labels": "-rw-r--r-- a=\"say \\\"1\\\"\"\nb=\"2\"",
				"one":    "-rw-r--r-- 2", "notes": "-rw-r--r-- note=\"x\\ny\"", "cpu": "-rw-r--r-- 1500", "memory": "-rw-r--r-- 256"}},
		{name: "projected", source: projected(ptr(int32(0o600)),
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"},
				Items: []corev1.KeyToPath{{Key: "key", Path: "s/key"}}}},
			corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{fieldFile("s/name",
				"metadata.name")}}}), plugin: "kubernetes.io~projected",
			want: map[string]string{"a": "-rw------- 1", "b.conf": "-rw------- two\n", "bin": "-rw------- \x00\xff", "s/key": "-rw------- hush",
				"s/name": "-rw------- web"}},
		{name: "the later source wins", source: projected(nil,
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
				Items: []corev1.KeyToPath{{Key: "a", Path: "a"}}}},
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}}),
			plugin: "kubernetes.io~projected",
			want:   map[string]string{"a": "-rw-r--r-- s", "key": "-rw-r--r-- hush"}},
		{name: "optional", source: configMap("gone", ptr(true), nil), plugin: "kubernetes.io~configmap", want: map[string]string{}},
		{name: "optional secret", source: secret("gone", ptr(true), nil), plugin: "kubernetes.io~secret", want: map[string]string{}},
		{name: "optional key", source: configMap("settings", ptr(true), nil, corev1.KeyToPath{Key: "no", Path: "p"},
			corev1.KeyToPath{Key: "a", Path: "a"}), plugin: "kubernetes.io~configmap",
			want: map[string]string{"a": "-rw-r--r-- 1"}},

		{name: "missing", source: configMap("gone", nil, nil), err: `MountVolume.SetUp failed for volume "v" : configmap "gone" not found`},
		{name: "missing secret", source: secret("gone", ptr(false), nil),
			err: `MountVolume.SetUp failed for volume "v" : secret "gone" not found`},
		{name: "missing key", source: configMap("settings", nil, nil, corev1.KeyToPath{Key: "no", Path: "p"}),
			err: "configmap references non-existent config key: no"},
		{name: "missing secret key", source: secret("keys", nil, nil, corev1.KeyToPath{Key: "no", Path: "p"}),
			err: "secret references non-existent secret key: no"},
		{name: "path", source: configMap("settings", nil, nil, corev1.KeyToPath{Key: "a", Path: "../a"}), err: "not a path within a volume"},
		{name: "a file where another has a directory",
			source: configMap("settings", nil, nil, corev1.KeyToPath{Key: "a", Path: "p"}, corev1.KeyToPath{Key: "a", Path: "p/q"}),
			err:    "write p/q"},
		{name: "container", source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{resourceFile("x", "nobody", "limits.cpu", "1")},
		}}, err: "container nobody not found"},
		{name: "token", source: projected(nil, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}),
			err: "no API server that issues tokens"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod, set := world(t)
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: tc.fsGroup}
			pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "v", VolumeSource: tc.source}}
			if !Needed(pod) {
				t.Error("not needed")
			}
			dir := filepath.Join(t.TempDir(), "pod")
			m := New(dir, set, place.Rules{})
			err := m.Refresh(t.Context(), pod, corev1.ResourceList{"memory": resource.MustParse("256Mi")})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(),
					"hush") {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				if strings.Contains(tc.err, "not found") && strings.Contains(tc.err, "MountVolume") && !errors.Is(err, ErrNotFound) {
					t.Errorf("%v does not match ErrNotFound", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tree(t, filepath.Join(dir, tc.plugin, "v"))); diff != "" {
				t.Error(diff)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the pod's directory: %v, %v", info, err)
			}
			if err := m.Remove(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left: %v", err)
			}
			if err := m.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRefreshChangesWhatHasChanged: each change is one rename of ..data, and unchanged volumes stay.
func TestRefreshChangesWhatHasChanged(t *testing.T) {
	pod, set := world(t)
	pod.Spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: configMap("settings", nil, nil)},
		{Name: "s", VolumeSource: secret("keys", nil, nil)},
		{Name: "d", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{fieldFile("l", "metadata.labels['b']")},
		}}}}
	dir := filepath.Join(t.TempDir(), "pod")
	m := New(dir, set, place.Rules{})
	data := func() (out []string) {
		t.Helper()
		for _, at := range []string{"kubernetes.io~configmap/c", "kubernetes.io~secret/s", "kubernetes.io~downward-api/d"} {
			to, err := os.Readlink(filepath.Join(dir, at, "..data"))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, to)
		}
		return out
	}
	refresh := func() []string {
		t.Helper()
		if err := m.Refresh(t.Context(), pod, nil); err != nil {
			t.Fatal(err)
		}
		return data()
	}
	first := refresh()
	if diff := cmp.Diff(first, refresh()); diff != "" {
		t.Errorf("changed without a reason: %s", diff)
	}
	changed := set.Changed()
	if err := set.Apply([]*corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "new"}}},
		nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("the change is not reported")
	}
	pod.Labels["b"] = "3"
	second := refresh()
	if second[0] == first[0] || second[1] != first[1] || second[2] == first[2] {
		t.Errorf("%v, then %v", first, second)
	}
	if diff := cmp.Diff(map[string]string{"a": "-rw-r--r-- new"}, tree(t, filepath.Join(dir, "kubernetes.io~configmap/c"))); diff != "" {
		t.Error(diff)
	}
	// A failing volume keeps its content; the others are written.
	pod.Spec.Volumes[1].Secret.SecretName = "gone"
	pod.Labels["b"] = "4"
	if err := m.Refresh(t.Context(), pod, nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if third := data(); third[1] != second[1] || third[2] == second[2] {
		t.Errorf("%v, then %v", second, third)
	}
}

func TestSetKeepsImmutableObjects(t *testing.T) {
	set := &Set{}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Immutable: ptr(true), Data: map[string]string{"a": "1"}}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Immutable: ptr(true), Data: map[string][]byte{"a": []byte("1")}}
	if err := set.Apply([]*corev1.ConfigMap{m}, []*corev1.Secret{s}); err != nil {
		t.Fatal(err)
	}
	if err := set.Apply([]*corev1.ConfigMap{m.DeepCopy()}, []*corev1.Secret{s.DeepCopy()}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for name, put := range map[string]func() error{
		"data": func() error { n := m.DeepCopy(); n.Data["a"] = "2"; return set.Apply([]*corev1.ConfigMap{n}, nil) },
		"binary": func() error {
			n := m.DeepCopy()
			n.BinaryData = map[string][]byte{"b": nil}
			return set.Apply([]*corev1.ConfigMap{n}, nil)
		},
		"mutable": func() error { n := m.DeepCopy(); n.Immutable = nil; return set.Apply([]*corev1.ConfigMap{n}, nil) },
		"secret":  func() error { n := s.DeepCopy(); n.Data["a"] = []byte("2"); return set.Apply(nil, []*corev1.Secret{n}) },
		"with others": func() error {
			n := s.DeepCopy()
			n.Immutable = ptr(false)
			return set.Apply([]*corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}, []*corev1.Secret{n})
		},
	} {
		if err := put(); !errors.Is(err, ErrImmutable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	maps, secrets := set.All()
	if len(maps) != 1 || len(secrets) != 1 || maps[0].Data["a"] != "1" {
		t.Errorf("%v, %v", maps, secrets)
	}
}
