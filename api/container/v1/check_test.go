package containerv1

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRootIsWhatWasPrinted(t *testing.T) {
	for _, tt := range []struct {
		root Root
		want string
	}{
		{root: Image{ID: "sha256:1"}, want: `{"image":"sha256:1"}`},
		{root: Share{Name: "/srv"}, want: `{"share":"/srv"}`},
		{root: Block{Name: "/dev/sdb", FS: FSExt4}, want: `{"block":"/dev/sdb"}`},
	} {
		raw, err := json.Marshal(RecordOf(tt.root))
		if err != nil || string(raw) != tt.want {
			t.Errorf("%#v: %s, %v", tt.root, raw, err)
		}
		var record RootRecord
		if err := json.Unmarshal(raw, &record); err != nil {
			t.Error(err)
		}
		got, err := record.Root()
		if diff := cmp.Diff(tt.root, got); diff != "" || err != nil {
			t.Errorf("%v: %s", err, diff)
		}
	}
	for _, record := range []RootRecord{{}, {Image: "i", Share: "s"}, {Share: "s", Block: "b"}, RecordOf(nil)} {
		if root, err := record.Root(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %#v, %v", record, root, err)
		}
	}
}

func TestCheck(t *testing.T) {
	at := func(s Source) []Mount { return []Mount{{Destination: "/at", Source: s}} }
	for _, tt := range []struct {
		name   string
		root   Root
		mounts []Mount
		stdio  Stdio
		want   error
		says   string
	}{
		{name: "nothing"},
		{name: "an image", root: Image{ID: "i"}, mounts: at(Dir{Name: "v"}), stdio: Log{File: "l"}},
		{name: "a client", root: Image{ID: "i"}, mounts: at(Image{ID: "j"}), stdio: Stream{Stdin: OpenStdin}},
		{name: "nobody", root: Image{ID: "i"}, mounts: at(Text{Content: "t"}), stdio: Discard{}},
		{name: "no image", root: Image{}, want: ErrInvalid},
		{name: "no source", mounts: at(nil), want: ErrInvalid, says: "/at"},
		{name: "no log", stdio: Log{}, want: ErrInvalid},
		{name: "a shared root", root: Share{Name: "/srv", SetID: true}},
		{name: "a shared root of nothing", root: Share{}, want: ErrInvalid},
		{name: "a block root", root: Block{Name: "/dev/sdb", FS: FSExt4}},
		{name: "a block root without a file system", root: Block{Name: "/dev/sdb"}, want: ErrInvalid, says: "/dev/sdb"},
		{name: "a block root of another", root: Block{Name: "/dev/sdb", FS: "xfs"}, want: errors.ErrUnsupported, says: `"xfs"`},
		{name: "a mount with set-user-id", mounts: at(Share{Name: "/srv", SetID: true}), want: ErrInvalid, says: "/at"},
		{name: "a shared mount", root: Image{ID: "i"}, mounts: at(Share{Name: "/srv"})},
		{name: "a shared mount of nothing", mounts: at(Share{}), want: ErrInvalid, says: "/at"},
		{name: "a block mount", root: Image{ID: "i"}, mounts: at(Block{Name: "/dev/sdb", FS: FSExt4, ReadOnly: true})},
		{name: "a device", root: Image{ID: "i"}, mounts: at(Block{Name: "/dev/sdb", Access: "rwm", Mode: 0o660})},
		{name: "a device without access", mounts: at(Block{Name: "/dev/sdb"}), want: ErrInvalid, says: "/dev/sdb"},
		{name: "a block mount with access", mounts: at(Block{Name: "/d", FS: FSExt4, Access: "r"}), want: ErrInvalid, says: "/d"},
		{name: "a block mount of nothing", mounts: at(Block{FS: FSExt4}), want: ErrInvalid, says: "/at"},
		{name: "another file system", mounts: at(Block{Name: "/d", FS: "xfs"}), want: errors.ErrUnsupported, says: `"xfs"`},
		{
			name: "a part of a device", mounts: []Mount{{Destination: "/at", SubPath: "p", Source: Block{Name: "/d", Access: "r"}}},
			want: ErrInvalid, says: `"p"`,
		},
		{name: "descriptors", root: Image{ID: "i"}, stdio: Descriptors{Stdin: true}},
	} {
		err := Check(Container{Root: tt.root, Mounts: tt.mounts, Stdio: tt.stdio})
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
