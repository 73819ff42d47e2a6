package ulimit

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func limit(kind string, soft, hard uint64) specs.POSIXRlimit {
	return specs.POSIXRlimit{Type: kind, Soft: soft, Hard: hard}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]specs.POSIXRlimit{
		"nofile=1024:2048":          limit("RLIMIT_NOFILE", 1024, 2048),
		"NPROC=5":                   limit("RLIMIT_NPROC", 5, 5),
		"RLIMIT_CORE=0":             limit("RLIMIT_CORE", 0, 0),
		"memlock=-1":                limit("RLIMIT_MEMLOCK", math.MaxUint64, math.MaxUint64),
		"stack=8388608:unlimited":   limit("RLIMIT_STACK", 8388608, math.MaxUint64),
		"fsize=9223372036854775807": limit("RLIMIT_FSIZE", 1<<63-1, 1<<63-1),
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "host", "nofile", "nofile=", "nofile=a", "nofile=2:1", "nofile=-1:5", "nofile=1:2:3", "nofile=-2",
		"nofiles=1", "=1", "nofile=9223372036854775808",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestParseAll(t *testing.T) {
	got, err := ParseAll(" nofile=1:2  core=0 ")
	want := []specs.POSIXRlimit{limit("RLIMIT_NOFILE", 1, 2), limit("RLIMIT_CORE", 0, 0)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	for _, text := range []string{"nofile=1 nofile=2", "core=0 x"} {
		if got, err := ParseAll(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
