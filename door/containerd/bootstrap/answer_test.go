package bootstrap

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskv2 "github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/proto"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// program builds an empty program with the path of a main package, as containerd has one.
func program(t *testing.T, module, path string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module " + module + "\ngo 1.26\n", path + "/main.go": "package main\nfunc main() {}\n"}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "program")
	cmd := testgo.Command(t.Context(), "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "./"+path)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

func TestFormFor(t *testing.T) {
	one := program(t, "github.com/containerd/containerd", "cmd/containerd")
	two := program(t, "github.com/containerd/containerd/v2", "cmd/containerd")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		p       Params
		publish string
		want    Form
	}{
		"1.x":              {Params{}, one, Plain},
		"2.0":              {Params{}, two, JSON},
		"2.3":              {Params{Modern: true}, two, Protobuf},
		"2.3, no program":  {Params{Modern: true}, "", Protobuf},
		"no program":       {Params{}, filepath.Join(script, "missing"), Plain},
		"no Go program":    {Params{}, script, Plain},
		"another program":  {Params{}, program(t, "example.com/x", "y"), Plain},
		"a longer path":    {Params{}, program(t, "github.com/containerd/containerd/v20", "y"), Plain},
		"a wrapped binary": {Params{}, "", Plain},
	} {
		if got := FormFor(test.p, test.publish); got != test.want {
			t.Errorf("%s: FormFor: got %d, want %d", name, got, test.want)
		}
	}
}

func TestWriteAddress(t *testing.T) {
	const address = "unix:///run/containerd/s/0123"
	write := func(f Form) []byte {
		var b bytes.Buffer
		if err := WriteAddress(&b, f, address); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if got := string(write(Plain)); got != address {
		t.Errorf("plain: got %q, want %q", got, address)
	}
	var fields struct {
		Version           int
		Address, Protocol string
	}
	err := json.Unmarshal(write(JSON), &fields)
	if err != nil || fields.Version != 3 || fields.Address != address || fields.Protocol != "ttrpc" {
		t.Errorf("JSON: got %+v, %v", fields, err)
	}
	var result bootapi.BootstrapResult
	if err := proto.Unmarshal(write(Protobuf), &result); err != nil {
		t.Fatal(err)
	}
	if result.Version != 3 || result.Address != address || result.Protocol != "ttrpc" || len(result.Extensions) != 0 {
		t.Errorf("protobuf: got %v", &result)
	}
	// Containerd 2.3 first parses every answer as BootstrapResult, so the older forms must not parse.
	for _, f := range []Form{Plain, JSON} {
		if proto.Unmarshal(write(f), &result) == nil {
			t.Errorf("form %d parses as a BootstrapResult: %v", f, &result)
		}
	}
}

func TestWriteExit(t *testing.T) {
	at := time.Unix(1700000000, 5).UTC()
	var b bytes.Buffer
	if err := WriteExit(&b, Exit{PID: 7, Status: 137, At: at}); err != nil {
		t.Fatal(err)
	}
	var got taskv2.DeleteResponse // 1.6 reads this one
	if err := proto.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Pid != 7 || got.ExitStatus != 137 || !got.ExitedAt.AsTime().Equal(at) {
		t.Errorf("got %v", &got)
	}
}
