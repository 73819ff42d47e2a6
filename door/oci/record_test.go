package oci

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

func TestCheckID(t *testing.T) {
	for id, valid := range map[string]bool{
		"a": true, "0": true, "a_b+c.d-e": true, "": false, ".": false, "..": false, "a/b": false, "a b": false, "ä": false, "a\x00": false,
	} {
		if err := checkID(id); (err == nil) != valid {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestStatus(t *testing.T) {
	self, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	gone := self
	gone.Start++
	for _, tt := range []struct {
		name   string
		record record
		want   specs.ContainerState
	}{
		{"without a surrogate", record{}, specs.StateStopped},
		{"without a container", record{Surrogate: self}, specs.StateCreating},
		{"created", record{Surrogate: self, Container: "c"}, specs.StateCreated},
		{"running", record{Surrogate: self, Container: "c", Started: true}, specs.StateRunning},
		{"paused", record{Surrogate: self, Container: "c", Started: true, Paused: true}, "paused"},
		{"ended", record{Surrogate: gone, Container: "c", Started: true, Paused: true}, specs.StateStopped},
	} {
		if got := tt.record.status(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestRecords(t *testing.T) {
	d, err := New(Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.State("c"); !errors.Is(err, ErrNotExist) {
		t.Errorf("an unknown container: %v", err)
	}
	if err := d.Delete(t.Context(), "c", true); err != nil {
		t.Errorf("delete --force of an unknown container: %v", err)
	}
	dir := filepath.Join(d.o.Root, "c")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`{"version":1,"id":"c"}`: true, `{"version":9,"id":"c"}`: false, `{"version":1,"id":"d"}`: false, `{`: false,
	} {
		if err := os.WriteFile(filepath.Join(dir, recordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := d.State("c"); (err == nil) != want {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
}
