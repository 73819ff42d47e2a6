package containerv1

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sources has one of each Source.
var sources = []Source{
	Dir{Name: "v"}, Dir{Name: "v", Medium: Memory, Size: 77, Mode: 0o1700}, Dir{Name: "v", Medium: HugePages},
	Files{Name: "v"}, Text{Content: "127.0.0.1 a=b,c\n"}, Termination{},
	Image{ID: "sha256:1"}, Share{Name: "/srv"},
	Block{Name: "/dev/sdb", FS: FSExt4}, Block{Name: "/dev/sdb", ReadOnly: true, Access: "rm", Mode: 0o660, Device: 1<<44 | 5},
}

func TestMountIsWhatWasPrinted(t *testing.T) {
	for _, source := range sources {
		want := Mount{Destination: "/at", Source: source, Options: []string{"rbind", "rprivate", "ro"}}
		switch source.(type) {
		case Dir, Files:
			want.Group, want.SubPath = 7, "a=b,c"
		case Block:
			want.Group, want.SubPath, want.Copy = 7, "a/b", true
		case Image, Share:
			want.SubPath = "a/b"
		}
		kind, from, options := want.Encode()
		got, err := ParseMount(want.Destination, kind, from, options)
		if err != nil {
			t.Errorf("%#v: %v", want, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T: %s", source, diff)
		}
	}
}

// A specification that an older engine wrote must still be readable.
func TestMountWords(t *testing.T) {
	m := Mount{
		Destination: "/v", Source: Dir{Name: "v", Medium: Memory, Size: 77, Mode: 0o1700},
		Group: 7, SubPath: "a", Options: []string{"ro"},
	}
	kind, source, options := m.Encode()
	want := []string{"ro", "medium=Memory", "size=77", "mode=1700", "group=7", "subpath=a"}
	if kind != "bulkhead.emptydir" || source != "v" || !slices.Equal(options, want) {
		t.Errorf("%q %q %q", kind, source, options)
	}
}

func TestParseMountRefuses(t *testing.T) {
	for _, tt := range []struct{ name, kind, option string }{
		{name: "an unknown medium", kind: typeDir, option: "medium=Paper"},
		{name: "a negative size", kind: typeDir, option: "size=-1"},
		{name: "a size in words", kind: typeDir, option: "size=1Gi"},
		{name: "a mode of 13 bits", kind: typeDir, option: "mode=10000"},
		{name: "a decimal mode", kind: typeDir, option: "mode=9"},
		{name: "a negative group", kind: typeDir, option: "group=-1"},
		{name: "a file system that no guest mounts", kind: typeBlock, option: "fs=xfs"},
		{name: "a disk that is neither", kind: typeBlock, option: "disk=rw"},
		{name: "an unknown access", kind: typeBlock, option: "access=x"},
		{name: "no access", kind: typeBlock, option: "access="},
		{name: "a device in words", kind: typeBlock, option: "device=sdb"},
		{name: "a group of 32 bits", kind: typeFiles, option: "group=2147483648"},
	} {
		if m, err := ParseMount("/at", tt.kind, "v", []string{tt.option}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %+v, error %v", tt.name, m, err)
		}
	}
}

func TestParseMountLeavesTheKernels(t *testing.T) {
	for _, kind := range []string{"proc", "tmpfs", "bind", "", "bulkhead.unknown"} {
		want := Mount{Destination: "/at", Source: System{kind, "s"}, Options: []string{"size=x", "group=3"}}
		m, err := ParseMount("/at", kind, "s", want.Options)
		if diff := cmp.Diff(want, m); diff != "" || err != nil {
			t.Errorf("type %q: %s, %v", kind, diff, err)
		}
	}
	m, err := ParseMount("/at", typeImage, "i", []string{"ro", "size=5", "group=3"})
	if err != nil || !slices.Equal(m.Options, []string{"ro", "size=5", "group=3"}) || m.Group != 0 {
		t.Errorf("an image has no size and no group: %+v, %v", m, err)
	}
}

// A parsed mount must be equal after printing and parsing.
func FuzzParseMount(f *testing.F) {
	for _, s := range sources {
		kind, source, options := Mount{Source: s, SubPath: "p", Group: 1, Options: []string{"rro"}}.Encode()
		f.Add(kind, source, strings.Join(options, "\n"))
	}
	f.Fuzz(func(t *testing.T, kind, source, options string) {
		first, err := ParseMount("/at", kind, source, strings.Split(options, "\n"))
		if err != nil {
			return
		}
		again, err := ParseMount(readd(first))
		if err != nil {
			t.Fatalf("the text of %#v cannot be parsed: %v", first, err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

func readd(m Mount) (destination, kind, source string, options []string) {
	kind, source, options = m.Encode()
	return m.Destination, kind, source, options
}
