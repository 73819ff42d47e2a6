package options

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// packed returns m as containerd sends it: with the bare name of its type.
func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	value, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}
}

func body(t *testing.T, text string) *anypb.Any {
	return packed(t, &runtimeoptions.Options{ConfigBody: []byte(text)})
}

func TestParse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(path, []byte("VCPUs = 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	prefixed := packed(t, &options.Options{ShimCgroup: "/s"})
	prefixed.TypeUrl = "type.googleapis.com/" + prefixed.TypeUrl
	for name, test := range map[string]struct {
		message *anypb.Any
		want    Options
	}{
		"none":          {nil, Options{}},
		"an empty one":  {&anypb.Any{TypeUrl: "x"}, Options{}},
		"runc's":        {packed(t, &options.Options{SystemdCgroup: true, BinaryName: "runc"}), Options{SystemdCgroup: true}},
		"a prefix":      {prefixed, Options{ShimCgroup: "/s"}},
		"a file":        {packed(t, &runtimeoptions.Options{ConfigPath: path, TypeUrl: "x"}), Options{VCPUs: 4}},
		"an empty body": {packed(t, &runtimeoptions.Options{TypeUrl: "x"}), Options{}},
		"a body": {
			body(t, "TypeUrl = 'x'\nVCPUs = 2\nmemorymib = 64\nStrict = true\nSystemdCgroup = true\nShimCgroup = '/s'\n"),
			Options{VCPUs: 2, MemoryMiB: 64, Strict: true, SystemdCgroup: true, ShimCgroup: "/s"},
		},
	} {
		got, err := Parse(test.message)
		if err != nil || !cmp.Equal(got, test.want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, test.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, message := range map[string]*anypb.Any{
		"another type":   {TypeUrl: "example.com/Options", Value: []byte{1}},
		"garbage":        {TypeUrl: runcType, Value: []byte{0xff}},
		"more garbage":   {TypeUrl: genericType, Value: []byte{0xff}},
		"no such file":   packed(t, &runtimeoptions.Options{ConfigPath: filepath.Join(t.TempDir(), "none")}),
		"a directory":    packed(t, &runtimeoptions.Options{ConfigPath: t.TempDir()}),
		"no TOML":        body(t, "VCPUs ="),
		"a bad pattern":  body(t, "PodAnnotations = ['[']"),
		"an unknown key": body(t, "Kernel = '/boot/vmlinuz'"),
		"negative":       body(t, "VCPUs = -1"),
		"too many":       body(t, "VCPUs = 1025"),
		"too much":       body(t, "MemoryMiB = 67108865"),
		"too long":       body(t, "#"+strings.Repeat("x", maxTOML)),
	} {
		if got, err := Parse(message); !errors.Is(err, errInvalid) {
			t.Errorf("%s: got %+v, %v, want errInvalid", name, got, err)
		}
	}
}

func TestFind(t *testing.T) {
	other := &anypb.Any{TypeUrl: "example.com/Other", Value: []byte{1}}
	got, err := Find([]*anypb.Any{other, nil, packed(t, &options.Options{ShimCgroup: "/s"})})
	if err != nil || got.ShimCgroup != "/s" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := Find([]*anypb.Any{other}); err != nil || !cmp.Equal(got, Options{}) {
		t.Errorf("no options: got %+v, %v", got, err)
	}
}

func TestKeepsAnnotation(t *testing.T) {
	o, err := Parse(body(t, "PodAnnotations = ['io.bulkhead.*', 'one']"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"io.bulkhead.cpus": true, "one": true, "two": false, "io.bulkhead.a/b": false} {
		if got := o.KeepsAnnotation(key); got != want {
			t.Errorf("KeepsAnnotation(%q): got %v, want %v", key, got, want)
		}
	}
}
