package oci

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const small = `{"ociVersion":"1.0.2","process":{"args":["a"]},"root":{"path":"rootfs"}}`

func write(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReadBundle(t *testing.T) {
	if data, err := ReadBundle(write(t, small)); err != nil || string(data) != small {
		t.Errorf("%s, %v", data, err)
	}
	if _, err := ReadBundle(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no config.json: %v", err)
	}
	if _, err := ReadBundle(write(t, strings.Repeat(" ", MaxConfig)+small)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a huge config.json: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "config.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBundle(dir); !errors.Is(err, ErrInvalid) {
		t.Errorf("a FIFO: %v", err)
	}
}

func TestDecodeProcess(t *testing.T) {
	p, err := DecodeProcess([]byte(`{"args":["a"],"capabilities":["CAP_KILL"],"env":["A=b=c","A","A=d"]}`))
	if err != nil || len(p.Capabilities.Ambient) != 1 || strings.Join(p.Env, " ") != "A=b=c A A=d" {
		t.Errorf("%+v, %v", p, err)
	}
	for name, text := range map[string]string{
		"nothing": ``, "null": `null`, "no command": `{"cwd":"/"}`, "two": `{"args":["a"]}{}`, "a list": `[]`,
		"no user": `{"args":["a"],"user":{"uid":4294967295}}`, "too long": strings.Repeat(" ", MaxConfig) + `{"args":["a"]}`,
	} {
		if _, err := DecodeProcess([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodeCapabilities(t *testing.T) {
	five := &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}, Effective: []string{"CAP_KILL"}, Inheritable: []string{"CAP_KILL"},
		Permitted: []string{"CAP_KILL"}, Ambient: []string{"CAP_KILL"}}
	for text, want := range map[string]*specs.LinuxCapabilities{
		`"capabilities":["CAP_KILL"],`:              five,
		`"capabilities":{"bounding":["CAP_KILL"]},`: {Bounding: []string{"CAP_KILL"}},
		`"capabilities":null,`:                      nil,
		``:                                          nil,
		`"capabilities":[],`:                        {},
	} {
		spec, err := DecodeBundle([]byte(strings.Replace(small, `"args"`, text+`"env":["OPTS=a=b","ODD"," Q=\" x \""],"args"`, 1)))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, spec.Process.Capabilities); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		// The environment is kept whole.
		if diff := cmp.Diff([]string{"OPTS=a=b", "ODD", ` Q=" x "`}, spec.Process.Env); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": ``, "no object": `[]`, "null": `null`, "empty": `{}`, "half": small[:len(small)/2],
		"no process":              `{"root":{"path":"r"}}`,
		"null process":            `{"process":null,"root":{"path":"r"}}`,
		"process of another type": `{"process":[1],"root":{"path":"r"}}`,
		"no command":              `{"process":{},"root":{"path":"r"}}`, "no root": `{"process":{"args":["a"]}}`,
		"empty root":                   `{"process":{"args":["a"]},"root":{}}`,
		"capabilities of another type": strings.Replace(small, `"args"`, `"capabilities":7,"args"`, 1),
		"no user":                      strings.Replace(small, `"args"`, `"user":{"uid":4294967295,"gid":0},"args"`, 1),
		"no group":                     strings.Replace(small, `"args"`, `"user":{"uid":0,"gid":4294967295},"args"`, 1),
		"no additional group":          strings.Replace(small, `"args"`, `"user":{"uid":0,"gid":0,"additionalGids":[1,4294967295]},"args"`, 1),
		"device type":                  strings.Replace(small, `"root"`, `"linux":{"devices":[{"type":"x","path":"/dev/x"}]},"root"`, 1),
		"device without path":          strings.Replace(small, `"root"`, `"linux":{"devices":[{"type":"c"}]},"root"`, 1),
	} {
		if _, err := DecodeBundle([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kind := range []string{"c", "b", "u", "p"} {
		devices := `"linux":{"devices":[{"type":"` + kind + `","path":"/dev/x"}]},"root"`
		if _, err := DecodeBundle([]byte(strings.Replace(small, `"root"`, devices, 1))); err != nil {
			t.Errorf("device of type %s: %v", kind, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(small))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := DecodeBundle(data)
		if err == nil && (spec.Process == nil || spec.Root == nil) {
			t.Error("accepted without process or root")
		}
	})
}

func TestRole(t *testing.T) {
	const containerd, containerdID = "io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id"
	const crio, crioID = "io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri-o.SandboxID"
	const docker, dockerID = "io.kubernetes.docker.type", "io.kubernetes.sandbox.id"
	tests := []struct {
		name        string
		annotations map[string]string
		kind        Kind // empty: an error
		id          string
	}{
		{"none", nil, Single, "me"},
		{"containerd sandbox", map[string]string{containerd: "sandbox", containerdID: "me"}, Sandbox, "me"},
		{"containerd container", map[string]string{containerd: "container", containerdID: "pod"}, Container, "pod"},
		{"cri-o sandbox", map[string]string{crio: "sandbox", crioID: "me"}, Sandbox, "me"},
		{"cri-o container", map[string]string{crio: "container", crioID: "pod"}, Container, "pod"},
		{"dockershim sandbox", map[string]string{docker: "podsandbox", dockerID: "me"}, Sandbox, "me"},
		{"dockershim container", map[string]string{docker: "container", dockerID: "pod"}, Container, "pod"},
		{"containerd's counts first", map[string]string{containerd: "container", crio: "sandbox", docker: "podsandbox", containerdID: "pod",
			crioID: "x"}, Container, "pod"},
		{"member of podman 5's pod", map[string]string{crioID: "pod"}, Container, "pod"},
		{"its own pod without a kind", map[string]string{crioID: "me"}, Single, "me"},
		{"container without a sandbox", map[string]string{crio: "container"}, "", ""},
		{"container in itself", map[string]string{crio: "container", crioID: "me"}, "", ""},
		{"unknown value", map[string]string{containerd: "pod"}, "", ""},
		{"another caller's value", map[string]string{containerd: "podsandbox"}, "", ""},
		{"empty value", map[string]string{docker: ""}, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			kind, id, err := Role(test.annotations, "me")
			if kind != test.kind || id != test.id || errors.Is(err, ErrInvalid) != (test.kind == "") {
				t.Errorf("kind %q, pod %q, %v", kind, id, err)
			}
		})
	}
}
